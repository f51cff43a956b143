"""How is p2pqueue itself driven in the benchmark?"""
