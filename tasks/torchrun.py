"""torchrun that does not outlive the process that started it: `python -m tasks.torchrun ARGUMENTS OF TORCHRUN`.

Left alone, it and its trainers would hold their GPUs for an update that nobody waits for.
"""

from tasks.child_process import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    from torch.distributed.run import main

    main()
