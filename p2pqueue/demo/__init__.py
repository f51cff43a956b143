"""What does `p2pqueue demo` show, and with which video?"""
