/* config_file.c - the YAML file: `name: value` at the top, or in sections, `section: {name: value}`. */
#include "options.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* A setting or a section, and the line that gives it. */
struct given {
    const char *name;
    size_t line;
};

struct config {
    struct options *options;
    yaml_document_t document;
    const char *path;
    struct given *given;
    size_t given_count;
};

static hvd_code config_error(const struct config *config, const yaml_node_t *node, const char *key,
                             const char *problem, hvd_status *status)
{
    return status_set(status, HVD_INVALID_ARGUMENT, "%s:%zu: %s%s%s", config->path, node->start_mark.line + 1,
                      key, *key ? " " : "", problem);
}

/* Of two values the user may mean either. `name`: of a section, or the one under which a setting is known if
 * it has several. */
static hvd_code give_once(struct config *config, const char *name, const char *key,
                          const yaml_node_t *key_node, hvd_status *status)
{
    for (size_t i = 0; i < config->given_count; i++) {
        if (strcmp(config->given[i].name, name) == 0)
            return status_set(status, HVD_INVALID_ARGUMENT,
                              "%s:%zu: %s gives again what line %zu gives; keep one of them", config->path,
                              key_node->start_mark.line + 1, key, config->given[i].line);
    }
    struct given *more = realloc(config->given, (config->given_count + 1) * sizeof *more);
    if (!more)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while reading %s", config->path);
    config->given = more;
    config->given[config->given_count++] = (struct given){name, key_node->start_mark.line + 1};
    return HVD_OK;
}

static const char *known_name(const struct setting *setting, const struct foreign *foreign)
{
    if (!setting && *foreign->setting)
        setting = setting_by_key(foreign->setting);
    return setting ? setting->config_key : foreign->config_key;
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
    if (give_once(config, known_name(setting, foreign), key, key_node, status))
        return status->code;
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
        const char *name = (const char *)key_node->data.scalar.value;
        snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", name);
        /* Sections do not nest: inside of one a mapping is refused by take_value. */
        bool is_section = value->type == YAML_MAPPING_NODE && !*section;
        hvd_code code = is_section ? give_once(config, name, key, key_node, status)
                                   : take_value(config, key, key_node, value, status);
        if (is_section && !code)
            code = take_mapping(config, key, value, status);
        if (code)
            return code;
    }
    return HVD_OK;
}

static hvd_code take_document(struct config *config, const yaml_node_t *root, hvd_status *status)
{
    if (root->type != YAML_MAPPING_NODE)
        return config_error(config, root, "", "expected lines of the form 'name: value'", status);
    return take_mapping(config, "", root, status);
}

/* Nothing, or a `---` alone. */
static bool is_empty(const yaml_node_t *root)
{
    return !root || (root->type == YAML_SCALAR_NODE && !root->data.scalar.length);
}

/* Behind a line `---` there is another document, which has no meaning here. */
static hvd_code take_documents(struct config *config, yaml_parser_t *parser, FILE *file, hvd_status *status)
{
    hvd_code code = HVD_OK;
    bool loaded;
    for (int i = 0; !code && (loaded = yaml_parser_load(parser, &config->document)); i++) {
        const yaml_node_t *root = yaml_document_get_root_node(&config->document);
        if (i && !is_empty(root))
            code = config_error(config, root, "", "a second document; all settings stand in one", status);
        else if (!is_empty(root))
            code = take_document(config, root, status);
        yaml_document_delete(&config->document);
        config->given_count = 0; /* the names were the document's */
        if (!root)
            return code;
    }
    if (code || loaded)
        return code;
    if (ferror(file)) /* a folder, for example */
        return status_set_errno(status, errno, "can't read the config file %s", config->path);
    return status_set(status, HVD_INVALID_ARGUMENT, "%s:%zu: not YAML: %s", config->path,
                      parser->problem_mark.line + 1, parser->problem ? parser->problem : "unreadable");
}

hvd_code config_file_read(struct options *options, const char *path, hvd_status *status)
{
    struct config config = {.options = options, .path = path};
    yaml_parser_t parser;
    FILE *file = fopen(path, "re");
    if (!file)
        return status_set_errno(status, errno, "can't read the config file %s", path);
    if (!yaml_parser_initialize(&parser)) {
        fclose(file);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while reading %s", path);
    }
    yaml_parser_set_input_file(&parser, file);
    hvd_code code = take_documents(&config, &parser, file, status);
    yaml_parser_delete(&parser);
    free(config.given);
    fclose(file);
    return code;
}
