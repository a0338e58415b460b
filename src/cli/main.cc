// The command line program. See docs/cli.md.
#include "cli/verbs.h"

int main(int argc, char** argv) { return sluice::cli::Main(argc, argv); }
