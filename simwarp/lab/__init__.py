"""The hardware laboratory: what asks chips, keeps their answers, and holds the simulator against them.

=================  ==============================================================================
`recording`        asks a subject and writes its recording; the command is ``simwarp record``
`subjects`         what is recorded, each subject a function ``ask``
`evidence`         each form of each instruction, with operands that find mistakes
`fuzz`             random programs, made small where two devices disagree
`counterexamples`  programs on which devices disagreed, and their right answers
`probe`            the fragment maps by experiment
=================  ==============================================================================
"""
