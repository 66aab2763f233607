/* misspelt.h - finds names that are spelt almost like a known one: variables of the environment, options. No
 * state; any thread. */
#ifndef HVD_BASE_MISSPELT_H
#define HVD_BASE_MISSPELT_H

#define MISSPELT_FAR  64
#define MISSPELT_TEXT "%s is no variable of Horovod's, and has no effect; did you mean %s?"

/* Returns how many letters have to be inserted, removed, replaced, or swapped with their neighbour to get
 * from one text to the other, small and capital letters being equal; MISSPELT_FAR for long texts. */
int misspelt_distance(const char *from, const char *to);

/* Calls `found` for each variable of the environment ("NAME=value", ends with NULL) that is none of Horovod's
 * but is spelt almost like one, or is called like an option. Variables without a value do not count. */
void misspelt_variables(char *const *environment,
                        void (*found)(void *owner, const char *name, const char *right), void *owner);

#endif
