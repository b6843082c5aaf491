package caddymodule

// formPostPlan is the basic plan with response_mode=form_post.
func formPostPlan() conformancePlan {
	plan := basicPlan()
	plan.name = "oidcc-formpost-basic-certification-test-plan"
	plan.text = "The basic plan with `response_mode=form_post`: answers and errors come in a posted form, and by no other way."
	plan.party = func(p *relyingParty) { p.responseMode = "form_post" }
	return plan
}
