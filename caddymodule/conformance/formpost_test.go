package conformance

func formPostPlans() []testPlan {
	basic := basicPlan()
	basic.name = "oidcc-formpost-basic-certification-test-plan"
	basic.text = "The basic plan with `response_mode=form_post`: answers and errors come in a posted form, and by no other way."
	basic.variants = both(func(p *relyingParty) { p.responseMode = "form_post" })
	return append([]testPlan{basic}, implicitPlans("oidcc-formpost-implicit-certification-test-plan", "form_post",
		"The implicit plan with `response_mode=form_post`.")...)
}
