package caddymodule

// implicitPlans are the implicit plan with its two response types, and the ones
// with userinfo that run with the second alone; as they are and by form_post.
func implicitPlans(name, mode, text string) []conformancePlan {
	with := func(responseType string) conformanceParty {
		return conformanceParty{responseType, func(p *relyingParty) { p.responseType, p.responseMode = responseType, mode }}
	}
	once := []string{"oidcc-response-type-missing", "oidcc-userinfo-get", "oidcc-userinfo-post-header", "oidcc-userinfo-post-body"}
	codeOnly := []string{
		"oidcc-idtoken-unsigned", "oidcc-ensure-request-without-nonce-succeeds-for-code-flow", "oidcc-codereuse",
		"oidcc-codereuse-30seconds", "oidcc-ensure-post-request-succeeds", "oidcc-server-client-secret-post",
		"oidcc-refresh-token", "oidcc-ensure-request-with-valid-pkce-succeeds",
	}
	return []conformancePlan{{
		name: name, text: text, modules: coreModulesWithout(append(codeOnly, once...)...),
		parties: []conformanceParty{with("id_token"), with("id_token token")},
	}, {
		name: name + ", `id_token token` alone", text: "What the plan runs with this response type alone.",
		modules: coreModulesOnly(once...), parties: by(with("id_token token").become),
	}}
}

func implicitPlan() []conformancePlan {
	return implicitPlans("oidcc-implicit-certification-test-plan", "", "Answers come in the fragment, and so do errors, but for a missing `response_type`, where nobody said that they should.")
}
