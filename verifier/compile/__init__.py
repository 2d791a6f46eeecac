"""From a kernel to its artifacts: PTX, cubin, listing, launch facts and the fingerprint of the toolchain.

A side branch of the data flow: the command line, the nightly job, the diff and the pytest plugin import it;
nothing from `parse/` upwards does, so that stored text can be checked where no CUDA package is installed. Its
modules import the CUDA packages only inside the functions (or the child processes) that need them.

    toolchain.py    where ptxas, nvdisasm and cuobjdump are, which version each one is, who made a cubin
    process.py      one program run under limits of time, memory and output
    elf.py          is a cubin whole, and who assembled it
    artifacts.py    the folder of one kernel: kernel.ptx, kernel.cubin, kernel.sass, kernel.mlir, meta.json
    store.py        content-addressed folders of that kind
    jobs.py         what a child process is asked and answers; child.py asks, worker.py answers
    worker.py       the child process that runs somebody's Python (or NVRTC, or nvJitLink) under limits
    capture.py      inside that child: takes PTX, cubin and launch facts from CuTe DSL
    inprocess.py    the same in this process, for a function that lives in it (a test, say)
    build.py        kernel case -> artifacts, one at a time or many at once
    assemble.py     PTX -> cubin     nvrtc.py  CUDA C++ -> PTX     disassemble.py  cubin -> listing
    reassemble.py   artifacts whose machine code another ptxas makes     orphans.py  a child ends with its parent
    fatbin.py       fat binaries, libraries and executables -> the cubins and PTX inside
"""
