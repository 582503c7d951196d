"""The hardware laboratory: experiments on GPUs, recordings of their results, comparison with the simulator.

=================  ==============================================================================
`recording`        runs a subject and writes its recording; the command is ``simwarp record``
`subjects`         the experiments that can be recorded, each with a function ``ask``
`evidence`         a kernel for each form of each instruction, with operands that expose mistakes
`fuzz`             random programs, and smaller ones on which two devices disagree
`counterexamples`  programs on which devices disagreed, and their correct answers
`probe`            experiments that find fragment maps
`bench`            products and convolutions of ±1 beside other libraries', in rounds of measurements
`blas`             calls of level-3 BLAS on machines of several devices, traced and compared
`outofcore`        out-of-core convolutions on simulated machines, and the paper's figures
`papers`           the figures and tables of the five papers, and what these print
`network_studies`  what each launch, barrier, shortcut, batch and scheme of a binarized network costs
`summa_scaling`    a model of `gpu.blas3.summa` on many hosts
`machines`         the machines that ``simwarp blas`` and ``simwarp ooc`` run on, by name
`crew`             processes that do tasks on devices of their own
`unbacked`         arrays of simulated machines that move no values
=================  ==============================================================================
"""
