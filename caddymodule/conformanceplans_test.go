package caddymodule

func conformancePlans() []conformancePlan {
	return []conformancePlan{
		basicPlan(), implicitPlan("id_token"), implicitPlan("id_token token"), formPostPlan(),
		configPlan(), logoutPlan(), backchannelPlan(),
	}
}
