"""The hardware laboratory: what asks chips, keeps their answers, and holds the simulator against them.

================  ==============================================================================
`evidence`        each form of each instruction, with operands that find mistakes
`fuzz`            random programs, made small where two devices disagree
`probe`           the fragment maps by experiment
================  ==============================================================================
"""
