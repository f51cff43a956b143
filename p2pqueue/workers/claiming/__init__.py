"""Which jobs does this worker take, which does it leave to others, and who takes over from a silent one?"""
