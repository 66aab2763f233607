/* config_file.c - the YAML file: `name: value` at the top, or in sections, `section: {name: value}`. */
#include "options.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

struct config {
    struct options *options;
    yaml_document_t document;
    const char *path;
};

static hvd_code config_error(const struct config *config, const yaml_node_t *node, const char *key,
                             const char *problem, hvd_status *status)
{
    return status_set(status, HVD_INVALID_ARGUMENT, "%s:%zu: %s%s%s", config->path, node->start_mark.line + 1,
                      key, *key ? " " : "", problem);
}

static hvd_code take_value(struct config *config, const char *key, const yaml_node_t *key_node,
                           const yaml_node_t *value, hvd_status *status)
{
    const struct setting *setting = setting_by_config_key(key);
    const struct foreign *foreign = foreign_by_config_key(key);
    char source[600];
    if (!setting && !foreign)
        return config_error(config, key_node, key, "is no setting; docs/settings.md lists them", status);
    if (value->type != YAML_SCALAR_NODE)
        return config_error(config, value, key, "must be a single value", status);
    const char *text = (const char *)value->data.scalar.value;
    snprintf(source, sizeof source, "%s:%zu: %s", config->path, value->start_mark.line + 1, key);
    /* The command line takes precedence, here and below. */
    if (foreign && config->options->foreign[foreign - foreign_table] != FOREIGN_OPEN)
        return HVD_OK;
    if (foreign)
        return foreign_take(config->options, foreign, text, source, status);
    if (config->options->values[setting - setting_table])
        return HVD_OK;
    return options_give(config->options, setting, text, source, status);
}

/* `section` is "" at the top, where a value that is a mapping is a section. */
static hvd_code take_mapping(struct config *config, const char *section, const yaml_node_t *node,
                             hvd_status *status)
{
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key_node = yaml_document_get_node(&config->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&config->document, pair->value);
        char key[256];
        if (key_node->type != YAML_SCALAR_NODE)
            return config_error(config, key_node, "", "a name must be a single word", status);
        snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "",
                 (const char *)key_node->data.scalar.value);
        /* Sections do not nest: inside of one a mapping is refused by take_value. */
        hvd_code code = value->type == YAML_MAPPING_NODE && !*section
                            ? take_mapping(config, key, value, status)
                            : take_value(config, key, key_node, value, status);
        if (code)
            return code;
    }
    return HVD_OK;
}

static hvd_code take_document(struct config *config, hvd_status *status)
{
    const yaml_node_t *root = yaml_document_get_root_node(&config->document);
    if (!root)
        return HVD_OK;
    if (root->type != YAML_MAPPING_NODE)
        return config_error(config, root, "", "expected lines of the form 'name: value'", status);
    return take_mapping(config, "", root, status);
}

hvd_code config_file_read(struct options *options, const char *path, hvd_status *status)
{
    struct config config = {.options = options, .path = path};
    yaml_parser_t parser;
    FILE *file = fopen(path, "re");
    if (!file)
        return status_set_errno(status, errno, "can't read the config file %s", path);
    hvd_code code;
    if (!yaml_parser_initialize(&parser)) {
        fclose(file);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while reading %s", path);
    }
    yaml_parser_set_input_file(&parser, file);
    if (yaml_parser_load(&parser, &config.document)) {
        code = take_document(&config, status);
        yaml_document_delete(&config.document);
    } else if (ferror(file)) { /* a folder, for example */
        code = status_set_errno(status, errno, "can't read the config file %s", path);
    } else {
        code = status_set(status, HVD_INVALID_ARGUMENT, "%s:%zu: not YAML: %s", path,
                          parser.problem_mark.line + 1, parser.problem ? parser.problem : "unreadable");
    }
    yaml_parser_delete(&parser);
    fclose(file);
    return code;
}
