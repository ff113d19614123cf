#include <cmath>

#include "parity/golden.h"
#include "parity/oracle.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/torch.h"
TEST_CASE("scratch"){ using namespace esm; using namespace esm::test;
  for (const char* f : {"hf_d16","hf_d24"}) { Golden golden(f); models::ModelOptions o; o.tokens_per_batch=128; models::Esm2 model=golden.make_model(o); Oracle oracle(model);
   auto r=oracle.run(golden.batch); auto s=model.forward_backward(golden.batch); double N=static_cast<double>(s.n_scored);
   printf("loss %.3e %.3e\n",s.loss_sum/N-r.loss_sum/N,golden.io("loss")[0]-r.loss_sum/N);
   for(auto*u:model.units()) for(size_t i=0;i<u->entries().size();++i){ auto name=u->entries()[i].spec.name; auto e=oracle.gradient(name); for(auto&x:e)x/=N; auto a=values(u->view(nn::Role::kGrad,i)); for(auto&x:a)x/=N; auto g=golden.gradient(name); printf("%-35s ours %.2e hf %.2e\n",name.c_str(),difference(a,e).relative_l2,difference(g,e).relative_l2);}
   }
}
