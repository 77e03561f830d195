"""Native runtimes, one file each; the library is imported by that file alone."""
