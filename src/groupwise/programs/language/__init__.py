"""The language of workflow code: what programs are, how they are read, run, scored and extended line by line.

Open `program` first. In the order in which data flows:

    operators, pure_operators   values, the registry, and the operators that a line may call
    program                     programs and their steps; questions with the cases that check answers
    faults                      named faults, and the one function in a text
    straight_form               the straight form: its normal form, types and interpreter
    parser                      `parse`: text to program, with the checks of the plain and workflow forms
    evaluation                  a program run on a problem: its outcome, its message and its score
    grammar                     every line that may legally come next, and random programs
"""
