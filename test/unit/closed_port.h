/* closed_port.h - a port that refuses connections for as long as a test needs. */
#ifndef HVD_TEST_CLOSED_PORT_H
#define HVD_TEST_CLOSED_PORT_H

/* Returns a descriptor that has a port of 127.0.0.1, so that no other process gets it, and that does not
 * listen. */
int closed_port(int *port);

#endif
