"""How fast is p2pqueue beside its peers? Each module here prints one table of figures."""
