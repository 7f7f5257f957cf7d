/* Included before the program: the simulator's header brings getopt's struct option along, a name
 * that programs may use for something of their own. */
#include <getopt.h>
#define option program_option
