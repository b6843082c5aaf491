package caddymodule

func conformancePlans() []conformancePlan {
	return []conformancePlan{
		basicPlan(), implicitPlan("id_token"), implicitPlan("id_token token"), formPostPlan(),
		configPlan(), logoutPlan(), backchannelPlan(),
		dynamicPlan(), assertionPlan(), otherPlans(), smartDiscoveryPlan(),
		standalonePlan("public client", &infernoPublic), standalonePlan("symmetric client", &infernoSymmetric),
		standalonePlan("asymmetric client, RS384", &infernoRS384), standalonePlan("asymmetric client, ES384", &infernoES384),
		backendServicesPlan(&infernoRS384), backendServicesPlan(&infernoES384),
		introspectionPlan(), g10Plan(), notBuiltPlan(),
	}
}
