/* faulty.h - the transports "faulty-shm" and "faulty-tcp": a second user of struct transport. They are shared
 * memory and TCP, but bytes move in odd pieces or only at the next call, dialling fails now and then, and a
 * link is lost when a test asks for it. A program that links faulty.c has them. */
#ifndef HVD_TEST_FAULTY_H
#define HVD_TEST_FAULTY_H

/* Of the next faulty link on this channel of which `bytes` bytes were sent, what follows is lost, and its
 * connection with it. */
void faulty_lose_after(int channel, long bytes);

/* From here on bytes move as they do without this; and how often this rank has looked at any of its links. */
void faulty_count(void);
long faulty_looks(int rank);

#endif
