"""fomkit answers how many of your training runs a day a machine will do, and how sure that is."""
