package caddymodule

// implicitPlan is the implicit plan, which runs once for each of its response
// types.
func implicitPlan(responseType string) conformancePlan {
	without := []string{
		"oidcc-idtoken-unsigned", "oidcc-ensure-request-without-nonce-succeeds-for-code-flow", "oidcc-codereuse",
		"oidcc-codereuse-30seconds", "oidcc-ensure-post-request-succeeds", "oidcc-server-client-secret-post",
		"oidcc-refresh-token", "oidcc-ensure-request-with-valid-pkce-succeeds",
	}
	if responseType == "id_token" { // there is nothing to ask userinfo with, and the other run has the last
		without = append(without, "oidcc-userinfo-get", "oidcc-userinfo-post-header", "oidcc-userinfo-post-body", "oidcc-response-type-missing")
	}
	return conformancePlan{
		name: "oidcc-implicit-certification-test-plan, response_type=" + responseType,
		text: "Answers come in the fragment, and so do errors, but for a missing `response_type`, where nobody said that they should.\n" +
			"(For `response_type=token`, which is none of OpenID Connect's, errors come in the query.)",
		party:   func(p *relyingParty) { p.responseType = responseType },
		modules: coreModulesWithout(without...),
	}
}
