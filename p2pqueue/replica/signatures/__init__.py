"""Who wrote what: which bytes are signed, how, and how is that checked?"""
