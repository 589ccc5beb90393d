from tests.faulty_disks import names_in

__all__ = ["names_in"]
