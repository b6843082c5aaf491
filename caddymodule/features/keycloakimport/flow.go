package keycloakimport

import "slices"

// flow is an authentication flow of a realm.
type flow struct {
	Alias      string      `json:"alias"`
	Executions []execution `json:"authenticationExecutions"`
}

type flows []flow

// execution is a step of a flow: an authenticator, or another flow.
type execution struct {
	Authenticator string `json:"authenticator"`
	Requirement   string `json:"requirement"`
	FlowAlias     string `json:"flowAlias"`
}

var (
	secondFactors = []string{"auth-otp-form", "auth-conditional-otp-form", "webauthn-authenticator", "auth-recovery-authn-code-form"}

	// ownSteps are authenticators that sign-in here has a counterpart for, and conditions that add nothing to it.
	ownSteps = []string{
		"", "auth-cookie", "auth-spnego", "identity-provider-redirector", "auth-username-password-form", "auth-username-form", "auth-password-form",
		"conditional-user-configured", "conditional-credential", "organization", "webauthn-authenticator-passwordless",
	}
)

// signIn is what a flow requires of people.
type signIn struct {
	secondFactor bool     // of people who have none, too
	foreign      []string // steps without a counterpart
}

// signIn reads what a flow requires.
func (all flows) signIn(alias string) (required signIn) {
	all.walk(alias, true, map[string]bool{}, &required)
	return required
}

// walk visits a flow and the flows below it, each once. A second factor that counts for everybody is required; one behind the
// condition that the person has one is what sign-in here does anyway.
func (all flows) walk(alias string, everybody bool, visited map[string]bool, required *signIn) {
	i := slices.IndexFunc(all, func(f flow) bool { return f.Alias == alias })
	if i < 0 || visited[alias] {
		return
	}
	visited[alias] = true
	for _, step := range all[i].Executions {
		switch {
		case step.Requirement == "DISABLED":
		case step.FlowAlias != "":
			all.walk(step.FlowAlias, everybody && !all.isOnlyForOwners(step), visited, required)
		case slices.Contains(secondFactors, step.Authenticator):
			required.secondFactor = required.secondFactor || everybody
		case !slices.Contains(ownSteps, step.Authenticator):
			required.foreign = append(required.foreign, step.Authenticator)
		}
	}
}

// isOnlyForOwners reports whether a flow counts only for people who have the factor. Other conditions, such as a role, count as met.
func (all flows) isOnlyForOwners(step execution) bool {
	i := slices.IndexFunc(all, func(f flow) bool { return f.Alias == step.FlowAlias })
	return step.Requirement == "CONDITIONAL" && i >= 0 && slices.ContainsFunc(all[i].Executions, func(e execution) bool {
		return e.Authenticator == "conditional-user-configured" && e.Requirement == "REQUIRED"
	})
}
