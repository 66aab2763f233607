// horovod.h in C++17: all that a program touches, in the way C++ would.
#include "horovod.h"

#include <cstdint>
#include <memory>
#include <vector>

struct Release {
    void operator()(hvd_handle *handle) const { hvd_release(handle); }
};

hvd_code add(hvd_context *context, std::vector<float> &values, hvd_status &status)
{
    const std::int64_t shape[] = {static_cast<std::int64_t>(values.size())};
    hvd_tensor tensor{};
    tensor.data = values.data();
    tensor.shape = shape;
    tensor.ndim = 1;
    tensor.dtype = HVD_FLOAT32;
    tensor.device_type = HVD_CPU;
    hvd_request request{};
    request.struct_size = sizeof request;
    request.operation = HVD_ALLREDUCE;
    request.name = "sum";
    request.count = 1;
    request.inputs = &tensor;
    request.reduction = HVD_SUM;
    request.done = [](void *, const hvd_status *outcome) { static_cast<void>(outcome->code); };
    hvd_handle *handle = nullptr;
    if (hvd_code code = hvd_submit(context, &request, &handle, &status))
        return code;
    std::unique_ptr<hvd_handle, Release> owner(handle);
    return hvd_wait(owner.get(), -1, &status);
}
