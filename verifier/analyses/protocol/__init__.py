"""Protocol proofs: what the warps of a cluster do to each other.

The instructions that steer synchronization and addressing are cut out of a kernel (`slicing`), compiled to closures
(`code`), and run for all warps of a cluster together on an abstract machine (`machine`) under scripted inputs
(`inputs`). Vector clocks give the happens-before of the run; checks on every arrive and wait show that each means the
same phase in all schedules, so one run speaks for all of them. The idea that a well-synchronized barrier protocol is
deterministic is that of Weft (Sharma, Bauer, Aiken: "Verification of Producer-Consumer Synchronization in GPU
Programs", PLDI 2015).
"""
