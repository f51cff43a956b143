"""How do two replicas come to hold the same? Sessions without I/O, and what answers them from the database."""
