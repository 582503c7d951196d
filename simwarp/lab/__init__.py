"""The hardware laboratory: experiments on GPUs, recordings of their results, comparison with the simulator.

=================  ==============================================================================
`recording`        runs a subject and writes its recording; the command is ``simwarp record``
`subjects`         the experiments that can be recorded, each with a function ``ask``
`evidence`         a kernel for each form of each instruction, with operands that expose mistakes
`fuzz`             random programs, and smaller ones on which two devices disagree
`counterexamples`  programs on which devices disagreed, and their correct answers
`probe`            experiments that find fragment maps
`blas`             calls of level-3 BLAS on machines of several devices, traced and compared
=================  ==============================================================================
"""
