"""What an agent remembers about its users, and how it finds something by words.

Open `user_memory` first. In the order in which data flows:

    statements     what kind of statement a sentence is: a fact, a decision, a correction, an open question
    facts          what a user says about themselves as subject and value; and requests to forget it
    user_memory    the facts of every user in one file: corrected, recalled by relevance and success, forgotten
    redaction      facts taken out of messages, when a user wants them forgotten in mid-conversation
    run_memory     the same for a training run: recalled once per task, rewound on resume
    vocabulary     words as stems, with synonyms (synonyms.txt), and how much of a question a text answers
"""
