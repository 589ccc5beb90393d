import threadpoolctl

from searchers.models.gaussian_process import one_blas_thread


def test_several_threads_are_allowed_again_afterwards():
    def threads():
        return [each["num_threads"] for each in threadpoolctl.threadpool_info()]

    with one_blas_thread():
        pass
    before = threads()
    with one_blas_thread():
        assert set(threads()) <= {1, *before}
    assert threads() == before
