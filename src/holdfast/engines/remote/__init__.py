"""The parts that every remote engine needs: a task's function run outside an event loop of its own.

A remote engine calls the task's function from its top, again and again: after a crash, after a
deploy, when it has forgotten it. Each time it must ask for the same things in the same order, while
the log may be far ahead of what the engine has heard of. So the function sees what is in the log
only where the engine has said so: that a call has ended, that a time has come, that a message is
there. Its own words (a decision, a note, the time) have their place in the log, and are the same
each time anyhow.

    carrier   what an engine does for a task that it drives
    strands   code that waits without a thread, by greenlets, and a loop that runs in them
    host      what a worker has for all its tasks, such as the logs that it holds
    sweep     what a worker looks after that its engine was not told of
    remote    what a task's function waits for, and when it may see it
    attempt   one call, made: the unit of work of an engine
    course    a task from where the engine begins to its end
"""
