package conformance

import ()

// implicitPlans are the implicit plan with its two response types, and the modules
// about userinfo, which run with `id_token token` alone.
func implicitPlans(name, mode, text string) []testPlan {
	with := func(responseType string) variant {
		return variant{responseType, func(p *relyingParty) { p.responseType, p.responseMode = responseType, mode }}
	}
	once := []string{"oidcc-response-type-missing", "oidcc-userinfo-get", "oidcc-userinfo-post-header", "oidcc-userinfo-post-body"}
	codeOnly := []string{ // or for clients that register themselves
		"oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported",
		"oidcc-idtoken-signature", "oidcc-idtoken-unsigned", "oidcc-ensure-request-without-nonce-succeeds-for-code-flow", "oidcc-codereuse",
		"oidcc-codereuse-30seconds", "oidcc-ensure-post-request-succeeds", "oidcc-server-client-secret-post",
		"oidcc-refresh-token", "oidcc-ensure-request-with-valid-pkce-succeeds",
	}
	return []testPlan{{
		name: name, text: text, modules: coreModulesWithout(append(codeOnly, once...)...),
		variants: []variant{with("id_token"), with("id_token token")},
	}, {
		name: name + ", `id_token token` alone", text: "The modules that the plan runs only with this response type.",
		modules: coreModulesOnly(once...), variants: alone(with("id_token token").become),
	}}
}

func implicitPlan() []testPlan {
	return implicitPlans("oidcc-implicit-certification-test-plan", "", "Answers come in the fragment, and so do errors, but for a missing `response_type`, where nobody said that they should.")
}

func formPostPlans() []testPlan {
	basic := basicPlan()
	basic.name = "oidcc-formpost-basic-certification-test-plan"
	basic.text = "The basic plan with `response_mode=form_post`: answers and errors come in a posted form, and by no other way."
	basic.variants = both(func(p *relyingParty) { p.responseMode = "form_post" })
	return append([]testPlan{basic}, implicitPlans("oidcc-formpost-implicit-certification-test-plan", "form_post",
		"The implicit plan with `response_mode=form_post`.")...)
}
