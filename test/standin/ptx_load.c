/* ptx_load.c - makes instructions of PTX text; see ptx_program.h. */
#include "standin/ptx_program.h"
#include "standin/ptx_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ptx_module {
    struct ptx_entry *entries;
};

enum { WORD = PTX_NAME };

/* A name that is needed only while a kernel is read: of a register or a label. */
struct name {
    char text[WORD];
    int value;
};

struct names {
    struct name *all;
    int count;
};

struct loader {
    struct ptx_text text;
    struct ptx_entry outside; /* has the variables that are declared outside of kernels */
    struct ptx_entry *entry;  /* the kernel that is read now */
    struct names registers, labels;
    struct names branches; /* labels that they name, and their indices */
};

/* ---- lists and tables --------------------------------------------------------------------------------- */

/* Makes room for one more; `count` is how many there are. */
static void *grow(void *list, int count, size_t size)
{
    bool full = (count & (count - 1)) == 0; /* 0 or a power of two */
    void *grown = full ? realloc(list, size * (count ? 2 * (size_t)count : 1)) : list;
    if (!grown)
        abort();
    return grown;
}

static void add_name(struct names *names, const char *text, int value)
{
    names->all = grow(names->all, names->count, sizeof *names->all);
    struct name *added = &names->all[names->count++];
    snprintf(added->text, sizeof added->text, "%s", text);
    added->value = value;
}

static const struct name *find_name(const struct names *names, const char *text)
{
    for (int i = names->count - 1; i >= 0; i--)
        if (strcmp(names->all[i].text, text) == 0)
            return &names->all[i];
    return NULL;
}

static const struct ptx_type *type_named(const char *text, size_t length)
{
    static const struct ptx_type types[] = {
#define TYPE(name, kind, bits) {#name, kind, bits},
        PTX_TYPES(TYPE)
#undef TYPE
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == length && memcmp(types[i].name, text, length) == 0)
            return &types[i];
    return NULL;
}

/* SUFFIX_COUNT: there is none of this name. */
static int suffix_named(const char *text, size_t length)
{
    static const char *const names[] = {
#define S(name) #name,
        PTX_ALL(S)
#undef S
    };
    int suffix = 0;
    while (suffix < SUFFIX_COUNT &&
           (strlen(names[suffix]) != length || memcmp(names[suffix], text, length) != 0))
        suffix++;
    return suffix;
}

static const struct operation {
    const char *name;
    int least, most; /* operands */
    uint64_t suffixes;
} operations[] = {
#define OPERATION(name, least, most, suffixes) {#name, least, most, suffixes},
    PTX_OPERATIONS(OPERATION)
#undef OPERATION
};

/* ---- variables ---------------------------------------------------------------------------------------- */

/* Reads the attributes and the name of a variable: .align 8 .b8 name. */
static const struct ptx_type *load_variable_type(struct loader *loader, char name[WORD], size_t *align)
{
    struct ptx_text *text = &loader->text;
    const struct ptx_type *type = NULL;
    unsigned long number = 1;
    while (ptx_text_word(text, name, WORD) && name[0] == '.') {
        const struct ptx_type *found = type_named(name + 1, strlen(name + 1));
        if (found)
            type = found;
        else if (strcmp(name, ".align") == 0)
            ptx_text_number(text, &number);
        else if (strcmp(name, ".ptr") != 0 && strcmp(name, ".global") != 0)
            ptx_text_fail(text, "%s is not known of a variable", name);
    }
    if (!type)
        ptx_text_fail(text, "%s has no type", name);
    *align = number;
    return text->failed ? NULL : type;
}

static void load_variable(struct loader *loader, struct ptx_entry *entry, enum ptx_space space)
{
    struct ptx_text *text = &loader->text;
    struct ptx_variable added = {.space = space};
    size_t align;
    unsigned long count = 1;
    const struct ptx_type *type = load_variable_type(loader, added.name, &align);
    if (!type)
        return;
    if (ptx_text_take(text, '[') && ptx_text_number(text, &count))
        ptx_text_expect(text, ']');
    size_t size = (size_t)type->bits / 8;
    align = align > size ? align : size;
    added.bytes = size * count;
    added.offset = (entry->bytes[space] + align - 1) / align * align;
    entry->bytes[space] = added.offset + added.bytes;
    entry->variables = grow(entry->variables, entry->variable_count, sizeof added);
    entry->variables[entry->variable_count++] = added;
}

/* ---- operands ----------------------------------------------------------------------------------------- */

static int register_named(struct loader *loader, const char *name)
{
    const struct name *found = find_name(&loader->registers, name);
    if (!found)
        add_name(&loader->registers, name, loader->entry->register_count++);
    return found ? found->value : loader->entry->register_count - 1;
}

/* 0f and 0d are followed by the bits of a float. */
static struct ptx_operand number_operand(struct loader *loader, const char *word, bool is_negative)
{
    bool is_float = word[0] == '0' && isalpha((unsigned char)word[1]) && strchr("fFdD", word[1]) != NULL;
    char *end;
    uint64_t value = is_float ? strtoull(word + 2, &end, 16) : strtoull(word, &end, 0);
    if (*end && strcmp(end, "U") != 0)
        ptx_text_fail(&loader->text, "%s is not a number", word);
    return (struct ptx_operand){.kind = NUMBER, .value = is_negative ? -value : value};
}

static struct ptx_operand named_operand(struct loader *loader, const char *word)
{
    static const char *const specials[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                           "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                           "%nctaid.y", "%nctaid.z", "%laneid"};
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (strcmp(word, specials[i]) == 0)
            return (struct ptx_operand){.kind = SPECIAL, .index = (int)i};
    if (word[0] == '%' && !strchr(word, '.'))
        return (struct ptx_operand){.kind = REGISTER, .index = register_named(loader, word)};
    const struct ptx_entry *entry = loader->entry;
    for (int i = 0; i < entry->variable_count; i++)
        if (strcmp(entry->variables[i].name, word) == 0)
            return (struct ptx_operand){
                .kind = NUMBER, .value = PTX_WINDOW(entry->variables[i].space) + entry->variables[i].offset};
    ptx_text_fail(&loader->text, "%s is not known", word);
    return (struct ptx_operand){.kind = NOTHING};
}

static struct ptx_operand load_scalar(struct loader *loader)
{
    char word[WORD];
    bool is_inverted = ptx_text_take(&loader->text, '!'), is_negative = ptx_text_take(&loader->text, '-');
    ptx_text_word(&loader->text, word, sizeof word);
    if (isdigit((unsigned char)word[0]))
        return number_operand(loader, word, is_negative);
    struct ptx_operand operand = named_operand(loader, word);
    operand.inverted = is_inverted;
    return operand;
}

static struct ptx_operand load_operand(struct loader *loader, struct ptx_instruction *instruction)
{
    struct ptx_text *text = &loader->text;
    struct ptx_operand operand;
    if (ptx_text_take(text, '[')) {
        operand = load_scalar(loader);
        if (ptx_text_take(text, '+'))
            instruction->offset = load_scalar(loader).value;
        ptx_text_expect(text, ']');
        return operand;
    }
    if (!ptx_text_take(text, '{'))
        return load_scalar(loader);
    do {
        if (instruction->element_count == ELEMENTS_LIMIT)
            ptx_text_fail(text, "a vector has too many elements");
        else
            instruction->elements[instruction->element_count++] = load_scalar(loader);
    } while (!text->failed && ptx_text_take(text, ','));
    ptx_text_expect(text, '}');
    return (struct ptx_operand){.kind = ELEMENTS};
}

/* ---- instructions ------------------------------------------------------------------------------------- */

/* The name and its suffixes, such as mul.wide.u32. */
static void load_operation(struct loader *loader, struct ptx_instruction *instruction, const char *word)
{
    size_t length = strcspn(word, ".");
    int operation = 0;
    while (operation < OPERATION_COUNT && (strlen(operations[operation].name) != length ||
                                           memcmp(operations[operation].name, word, length) != 0))
        operation++;
    if (operation == OPERATION_COUNT) {
        ptx_text_fail(&loader->text, "instruction %s is not known", word);
        return;
    }
    instruction->operation = (enum ptx_operation)operation;
    for (const char *at = word + length; *at; at += 1 + length) {
        length = strcspn(at + 1, ".");
        const struct ptx_type *type = type_named(at + 1, length);
        int suffix = suffix_named(at + 1, length);
        if (type) {
            instruction->type = instruction->source && operation == OP_cvt ? instruction->source : type;
            instruction->source = type;
        } else if (suffix < SUFFIX_COUNT && operations[operation].suffixes >> suffix & 1) {
            instruction->suffixes |= UINT64_C(1) << suffix;
        } else {
            ptx_text_fail(&loader->text, "%s: .%.*s is not known", word, (int)length, at + 1);
        }
    }
}

static bool is_computing(enum ptx_operation operation)
{
    return operation >= OP_add && operation <= OP_shr;
}

/* What the table of operations doesn't say. */
static void check_instruction(struct loader *loader, const struct ptx_instruction *instruction)
{
    struct ptx_text *text = &loader->text;
    const struct operation *row = &operations[instruction->operation];
    const struct ptx_type *type = instruction->type;
    bool is_float = type && type->kind == FLOAT;
    if (instruction->operand_count < row->least || instruction->operand_count > row->most)
        ptx_text_fail(text, "%s has %d operands", row->name, instruction->operand_count);
    if (!type && row->most > 1)
        ptx_text_fail(text, "%s has no type", row->name);
    if (is_float && type->bits == 16 && instruction->operation != OP_cvt)
        ptx_text_fail(text, "%s of f16 is not known", row->name);
    if (is_float && is_computing(instruction->operation) &&
        (instruction->operation == OP_rem || instruction->operation >= OP_and))
        ptx_text_fail(text, "%s of floats is not known", row->name);
    if ((instruction->operation == OP_atom || instruction->operation == OP_red) &&
        (!HAS(instruction, add) || !type || type->bits < 32))
        ptx_text_fail(text, "only additions of 32 and 64 bits are atomic");
    int elements = HAS(instruction, v4) ? 4 : HAS(instruction, v2) ? 2 : 0;
    if (instruction->operation != OP_mov && instruction->element_count != elements)
        ptx_text_fail(text, "%s has a vector of %d elements", row->name, instruction->element_count);
}

static void load_operands(struct loader *loader, struct ptx_instruction *instruction)
{
    struct ptx_text *text = &loader->text;
    while (!text->failed && ptx_text_peek(text) != ';') {
        if (instruction->operand_count == OPERANDS_LIMIT) {
            ptx_text_fail(text, "there are too many operands");
            return;
        }
        instruction->operands[instruction->operand_count++] = load_operand(loader, instruction);
        if (ptx_text_take(text, '|'))
            instruction->is_paired = true;
        else
            ptx_text_take(text, ',');
    }
}

static void add_instruction(struct ptx_entry *entry, struct ptx_instruction instruction)
{
    entry->code = grow(entry->code, entry->length, sizeof instruction);
    entry->code[entry->length++] = instruction;
}

/* An instruction, or a label. */
static void load_instruction(struct loader *loader)
{
    char word[WORD];
    struct ptx_text *text = &loader->text;
    struct ptx_entry *entry = loader->entry;
    struct ptx_instruction instruction = {.line = text->line};
    bool is_guarded = ptx_text_take(text, '@');
    if (is_guarded)
        instruction.guard = load_scalar(loader);
    if (!ptx_text_word(text, word, sizeof word))
        return;
    if (!is_guarded && ptx_text_take(text, ':')) {
        add_name(&loader->labels, word, entry->length);
        return;
    }
    load_operation(loader, &instruction, word);
    if (instruction.operation == OP_bra && ptx_text_word(text, word, sizeof word))
        add_name(&loader->branches, word, entry->length);
    else
        load_operands(loader, &instruction);
    if (ptx_text_expect(text, ';'))
        check_instruction(loader, &instruction);
    add_instruction(entry, instruction);
}

/* ---- kernels ------------------------------------------------------------------------------------------ */

/* .reg, which says nothing that the instructions don't; .shared and .local; .pragma. */
static void load_directive(struct loader *loader)
{
    char word[WORD];
    struct ptx_text *text = &loader->text;
    ptx_text_word(text, word, sizeof word);
    if (strcmp(word, ".shared") == 0)
        load_variable(loader, loader->entry, SHARED);
    else if (strcmp(word, ".local") == 0)
        load_variable(loader, loader->entry, LOCAL);
    else if (strcmp(word, ".reg") != 0 && strcmp(word, ".pragma") != 0)
        ptx_text_fail(text, "%s is not known in a kernel", word);
    ptx_text_skip(text, ';');
}

static void resolve_branches(struct loader *loader)
{
    for (int i = 0; i < loader->branches.count; i++) {
        const struct name *branch = &loader->branches.all[i];
        const struct name *label = find_name(&loader->labels, branch->text);
        if (label)
            loader->entry->code[branch->value].target = label->value;
        else
            ptx_text_fail(&loader->text, "there is no label %s", branch->text);
    }
}

/* Inline assembly has scopes of its own, in braces. */
static void load_body(struct loader *loader)
{
    struct ptx_text *text = &loader->text;
    int depth = 1;
    while (depth && !text->failed) {
        if (ptx_text_take(text, '}'))
            depth--;
        else if (ptx_text_take(text, '{'))
            depth++;
        else if (ptx_text_take(text, ';'))
            continue;
        else if (ptx_text_peek(text) == '.')
            load_directive(loader);
        else
            load_instruction(loader);
    }
    resolve_branches(loader);
}

static void free_entry(struct ptx_entry *entry)
{
    free(entry->variables);
    free(entry->code);
    free(entry);
}

static void start_entry(struct loader *loader)
{
    const struct ptx_entry *outside = &loader->outside;
    loader->entry = calloc(1, sizeof *loader->entry);
    if (!loader->entry)
        abort();
    for (int i = 0; i < outside->variable_count; i++) {
        struct ptx_entry *entry = loader->entry;
        entry->variables = grow(entry->variables, entry->variable_count, sizeof *entry->variables);
        entry->variables[entry->variable_count++] = outside->variables[i];
    }
    loader->entry->bytes[SHARED] = outside->bytes[SHARED];
    loader->registers.count = loader->labels.count = loader->branches.count = 0;
}

static void load_entry(struct loader *loader, struct ptx_module *module)
{
    char word[WORD];
    struct ptx_text *text = &loader->text;
    start_entry(loader);
    ptx_text_word(text, loader->entry->name, PTX_NAME);
    if (ptx_text_take(text, '(')) {
        while (!text->failed && !ptx_text_take(text, ')')) {
            if (!ptx_text_word(text, word, sizeof word) || strcmp(word, ".param") != 0)
                ptx_text_fail(text, "%s is not a parameter", word);
            load_variable(loader, loader->entry, PARAM);
            ptx_text_take(text, ',');
        }
    }
    while (!text->failed && ptx_text_peek(text) == '.') /* the number of threads for which it is compiled */
        ptx_text_skip(text, '\n');
    if (ptx_text_expect(text, '{'))
        load_body(loader);
    add_instruction(loader->entry, (struct ptx_instruction){.operation = OP_ret, .line = text->line});
    loader->entry->next = module->entries;
    module->entries = loader->entry;
}

static void load_module(struct loader *loader, struct ptx_module *module)
{
    static const char *const lines[] = {".version", ".target", ".address_size"};
    char word[WORD];
    struct ptx_text *text = &loader->text;
    while (!text->failed && !ptx_text_ends(text)) {
        ptx_text_word(text, word, sizeof word);
        bool is_line = false;
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            is_line |= strcmp(word, lines[i]) == 0;
        if (is_line) {
            ptx_text_skip(text, '\n');
        } else if (strcmp(word, ".shared") == 0) {
            load_variable(loader, &loader->outside, SHARED);
            ptx_text_expect(text, ';');
        } else if (strcmp(word, ".entry") == 0) {
            load_entry(loader, module);
        } else if (strcmp(word, ".visible") != 0) {
            ptx_text_fail(text, "%s is not known outside of kernels", word);
        }
    }
}

struct ptx_module *ptx_load(const char *text, char why[PTX_TEXT])
{
    struct loader loader = {.text = {.at = text, .line = 1, .why = why}};
    struct ptx_module *module = calloc(1, sizeof *module);
    if (!module)
        abort();
    load_module(&loader, module);
    free(loader.outside.variables);
    free(loader.registers.all);
    free(loader.labels.all);
    free(loader.branches.all);
    if (loader.text.failed) {
        ptx_unload(module);
        return NULL;
    }
    return module;
}

void ptx_unload(struct ptx_module *module)
{
    while (module->entries) {
        struct ptx_entry *gone = module->entries;
        module->entries = gone->next;
        free_entry(gone);
    }
    free(module);
}

const struct ptx_entry *ptx_find(const struct ptx_module *module, const char *name)
{
    const struct ptx_entry *entry = module->entries;
    while (entry && strcmp(entry->name, name) != 0)
        entry = entry->next;
    return entry;
}
