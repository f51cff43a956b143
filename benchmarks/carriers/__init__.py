"""How do others carry files from one place to another? Each with its servers on loopback, for the time of a measurement."""
