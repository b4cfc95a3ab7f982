"""A whole PTX module in a string."""
# expect: nvls
# kernels: reduce=nvls

PTX = """
.version 8.3
.target sm_90
.address_size 64
.visible .entry reduce(.param .u64 p) {
  .reg .b64 %rd<2>;
  .reg .f32 %f<2>;
  ld.param.u64 %rd1, [p];
  multimem.ld_reduce.relaxed.sys.global.add.f32 %f1, [%rd1];  // <- nvls
  st.global.f32 [%rd1], %f1;
  ret;
}
"""
