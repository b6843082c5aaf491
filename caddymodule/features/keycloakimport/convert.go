package keycloakimport

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// Convert returns a fhir block with the users and clients of an exported realm, for an authorization server with the given
// issuer. It also returns a summary of omissions and changes, one line each. check is called with a fhir block that contains a
// single entry; entries that it rejects are omitted. Convert returns an error if the export cannot be parsed or converted.
func Convert(export []byte, issuer string, check func(caddyfile string) error) (caddyfile string, summary []string, err error) {
	r, err := parseRealm(export)
	if err != nil {
		return "", nil, err
	}
	c := &converter{
		realm: r, issuer: issuer, check: check, currentEntry: "realm", clientIDs: map[string]bool{}, userNames: map[string]bool{},
		ambiguousGroups: r.ambiguousGroups(), signIn: r.Flows.requirements(r.BrowserFlow), restrictedScopes: r.restrictedScopes(),
	}
	c.writeRaw("# The realm " + commentText(r.Realm) + " of Keycloak. This file contains password hashes and client secrets: keep it confidential.")
	c.writeRaw("# In tokens, sub is the user name; Keycloak used the user's id.")
	c.writeNested("", func() { c.writeNested("fhir", c.block) })
	return c.output.String(), c.summary, check(c.output.String())
}

// block writes the content of the fhir block. Clients are written first, so that a user with the name of a client is omitted.
func (c *converter) block() {
	c.writeOption("issuer", nil, c.issuer)
	c.writeLifetimes()
	c.reportSignIn()
	c.writeClients()
	c.reportGroupRoles(c.realm.Groups)
	c.writeUsers()
	for _, p := range c.realm.IdentityProviders {
		c.reportChange("identity provider %s omitted: its secret is not exported; configure it with an idp block", p.Alias)
	}
}

// reportSignIn reports requirements of the browser flow that the gateway does not support.
func (c *converter) reportSignIn() {
	if c.signIn.secondFactor {
		c.reportChange("the browser flow requires a second factor: each client has acr mfa")
	}
	for _, step := range c.signIn.unsupportedSteps {
		c.reportChange("step %s of the browser flow is not supported", step)
	}
}

func (c *converter) writeLifetimes() {
	r := c.realm.lifespans
	c.writeLifetime("access_token_lifetime", r.AccessToken)
	session := c.writeLifetime("session_lifetime", r.sessionMax())
	if idle := r.sessionIdle(); idle > 0 && idle < int(cmp.Or(session, authorize.DefaultSessionLifetime)/time.Second) {
		c.writeLifetime("session_idle", idle)
	}
	refresh := c.writeLifetime("refresh_token_lifetime", r.offlineMax())
	idle := minNonzero(r.OfflineIdle, r.ClientOfflineIdle)
	if maximum := int(cmp.Or(refresh, authorize.DefaultRefreshTokenLifetime) / time.Second); idle > maximum {
		c.reportChange("refresh_token_idle_lifetime is shorter than Keycloak's %s", formatSeconds(idle))
		idle = maximum
	}
	c.writeLifetime("refresh_token_idle_lifetime", idle)
}

// writeLifetime writes a lifetime, limited to the gateway's maximum, and returns it.
func (c *converter) writeLifetime(name string, seconds int) time.Duration {
	if seconds <= 0 {
		c.reportChange("%s has this server's default: the realm does not set it", name)
		return 0
	}
	lifetime := time.Duration(seconds) * time.Second
	if maximum := authorize.MaxLifetime(name); lifetime > maximum {
		c.reportChange("%s is limited to %v instead of %s", name, maximum, formatSeconds(seconds))
		lifetime = maximum
	}
	c.writeRaw(name + " " + lifetime.String())
	return lifetime
}

func formatSeconds(s int) string { return (time.Duration(s) * time.Second).String() }

// lifespans are a realm's lifetimes in seconds; 0 means unset.
type lifespans struct {
	AccessToken       int  `json:"accessTokenLifespan"`
	SessionIdle       int  `json:"ssoSessionIdleTimeout"`
	SessionMax        int  `json:"ssoSessionMaxLifespan"`
	ClientSessionIdle int  `json:"clientSessionIdleTimeout"`
	ClientSessionMax  int  `json:"clientSessionMaxLifespan"`
	OfflineIdle       int  `json:"offlineSessionIdleTimeout"`
	OfflineMax        int  `json:"offlineSessionMaxLifespan"`
	OfflineMaxEnabled bool `json:"offlineSessionMaxLifespanEnabled"`
	ClientOfflineIdle int  `json:"clientOfflineSessionIdleTimeout"`
	ClientOfflineMax  int  `json:"clientOfflineSessionMaxLifespan"`
}

// offlineMax returns the maximum lifetime of offline access; 0 means unlimited.
func (l lifespans) offlineMax() int {
	if l.OfflineMaxEnabled {
		return minNonzero(l.OfflineMax, l.ClientOfflineMax)
	}
	return l.ClientOfflineMax
}

// sessionMax returns the maximum lifetime of sessions, sessionIdle the maximum idle time.
func (l lifespans) sessionMax() int  { return minNonzero(l.SessionMax, l.ClientSessionMax) }
func (l lifespans) sessionIdle() int { return minNonzero(l.SessionIdle, l.ClientSessionIdle) }

// minNonzero returns the smallest nonzero number of seconds, or 0.
func minNonzero(seconds ...int) int {
	shortest := math.MaxInt
	for _, s := range seconds {
		if s > 0 {
			shortest = min(shortest, s)
		}
	}
	if shortest == math.MaxInt {
		return 0
	}
	return shortest
}

// shorterLifetimeReason returns a message if a client's lifetimes are shorter than the realm's, otherwise "". The gateway
// applies the realm's lifetimes to all clients.
func (l lifespans) shorterLifetimeReason(attributes map[string]string) string {
	for _, own := range []struct {
		attribute string
		realm     int
	}{
		{"access.token.lifespan", l.AccessToken},
		{"client.session.idle.timeout", l.sessionIdle()},
		{"client.session.max.lifespan", l.sessionMax()},
		{"client.offline.session.idle.timeout", minNonzero(l.OfflineIdle, l.ClientOfflineIdle)},
		{"client.offline.session.max.lifespan", l.offlineMax()},
	} {
		text := attributes[own.attribute]
		length, err := strconv.Atoi(cmp.Or(text, "0"))
		if err != nil || length > 0 && length < cmp.Or(own.realm, math.MaxInt) {
			return fmt.Sprintf("%s is %s seconds, shorter than the realm's; lifetimes per client are not supported", own.attribute, text)
		}
	}
	return ""
}

type flow struct {
	Alias      string      `json:"alias"`
	Executions []execution `json:"authenticationExecutions"`
}

type flows []flow

// execution is a step of a flow: an authenticator or a subflow.
type execution struct {
	Authenticator string `json:"authenticator"`
	Requirement   string `json:"requirement"`
	FlowAlias     string `json:"flowAlias"`
}

var (
	secondFactorSteps = []string{"auth-otp-form", "auth-conditional-otp-form", "webauthn-authenticator", "auth-recovery-authn-code-form"}

	// supportedSteps are authenticators that the gateway supports, and conditions that have no effect.
	supportedSteps = []string{
		"", "auth-cookie", "auth-spnego", "identity-provider-redirector", "auth-username-password-form", "auth-username-form", "auth-password-form",
		"conditional-user-configured", "conditional-credential", "organization", "webauthn-authenticator-passwordless",
	}
)

// signInRequirements are the requirements of a flow: whether it requires a second factor, and its unsupported steps.
type signInRequirements struct {
	secondFactor     bool     // required even if the user has not enrolled a second factor
	unsupportedSteps []string // required steps that the gateway does not support
}

// requirements returns the combined requirements of a flow and its subflows.
func (all flows) requirements(alias string) (required signInRequirements) {
	all.walk(alias, true, map[string]bool{}, &required)
	return required
}

// walk collects the requirements of a flow and its subflows, each visited once. An unconditional second factor is required. A
// second factor that only enrolled users need requires no option, because the gateway always requires enrolled factors.
func (all flows) walk(alias string, unconditional bool, visited map[string]bool, required *signInRequirements) {
	i := slices.IndexFunc(all, func(f flow) bool { return f.Alias == alias })
	if i < 0 || visited[alias] {
		return
	}
	visited[alias] = true
	for _, step := range all[i].Executions {
		switch {
		case step.Requirement == "DISABLED":
		case step.FlowAlias != "":
			all.walk(step.FlowAlias, unconditional && !all.isOnlyIfEnrolled(step), visited, required)
		case slices.Contains(secondFactorSteps, step.Authenticator):
			required.secondFactor = required.secondFactor || unconditional
		case !slices.Contains(supportedSteps, step.Authenticator):
			required.unsupportedSteps = append(required.unsupportedSteps, step.Authenticator)
		}
	}
}

// isOnlyIfEnrolled reports whether a subflow applies only to users who have enrolled the factor. Other conditions, such as
// roles, are assumed to be met.
func (all flows) isOnlyIfEnrolled(step execution) bool {
	i := slices.IndexFunc(all, func(f flow) bool { return f.Alias == step.FlowAlias })
	return step.Requirement == "CONDITIONAL" && i >= 0 && slices.ContainsFunc(all[i].Executions, func(e execution) bool {
		return e.Authenticator == "conditional-user-configured" && e.Requirement == "REQUIRED"
	})
}

// roleMappings are the roles of a realm, and the client scopes that are restricted to roles.
type roleMappings struct {
	Roles struct {
		Realm []role `json:"realm"`
	} `json:"roles"`
	DefaultRole         role                      `json:"defaultRole"`
	ScopeMappings       []scopeMapping            `json:"scopeMappings"`
	ClientScopeMappings map[string][]scopeMapping `json:"clientScopeMappings"` // restrictions to client roles, by client
}

type role struct {
	Name       string `json:"name"`
	Composites struct {
		Realm []string `json:"realm"`
	} `json:"composites"`
}

type scopeMapping struct {
	ClientScope string   `json:"clientScope"` // empty in scope mappings of clients, which only limit the roles in tokens
	Roles       []string `json:"roles"`
}

// restrictedScopes returns the client scopes restricted to roles, unless every user has one of these roles.
func (r *realm) restrictedScopes() map[string]bool {
	restricted := map[string]bool{}
	defaultRoles := r.defaultRoles()
	for _, m := range r.ScopeMappings {
		if m.ClientScope != "" && !slices.ContainsFunc(m.Roles, func(role string) bool { return defaultRoles[role] }) {
			restricted[m.ClientScope] = true
		}
	}
	for _, mappings := range r.ClientScopeMappings {
		for _, m := range mappings {
			restricted[m.ClientScope] = m.ClientScope != ""
		}
	}
	return restricted
}

// defaultRoles returns the realm's default role and its composite roles, or no roles if a user lacks the default role.
func (r *realm) defaultRoles() map[string]bool {
	all := map[string]bool{}
	if !slices.ContainsFunc(r.Users, func(u user) bool { return !slices.Contains(u.RealmRoles, r.DefaultRole.Name) }) {
		r.addRole(r.DefaultRole.Name, all)
	}
	return all
}

// addRole adds a role and, recursively, its composite roles.
func (r *realm) addRole(name string, to map[string]bool) {
	if name == "" || to[name] {
		return
	}
	to[name] = true
	for _, role := range r.Roles.Realm {
		if role.Name == name {
			for _, composite := range role.Composites.Realm {
				r.addRole(composite, to)
			}
		}
	}
}

// reportGroupRoles reports the roles of groups, which are omitted.
func (c *converter) reportGroupRoles(groups []group) {
	for _, g := range groups {
		if roles := c.realm.assignedRoles(g.RealmRoles, g.ClientRoles); len(roles) > 0 {
			c.reportChange("roles of group %s omitted: %s; use scope_limit", g.Path, strings.Join(roles, ", "))
		}
		c.reportGroupRoles(g.SubGroups)
	}
}

// assignedRoles returns the given roles without those that Keycloak assigns to every user.
func (r *realm) assignedRoles(realmRoles []string, clientRoles map[string][]string) (roles []string) {
	for _, role := range realmRoles {
		if !slices.Contains([]string{r.DefaultRole.Name, "default-roles-" + r.Realm, "offline_access", "uma_authorization"}, role) {
			roles = append(roles, role)
		}
	}
	for _, client := range slices.Sorted(maps.Keys(clientRoles)) {
		if client != "account" {
			for _, role := range clientRoles[client] {
				roles = append(roles, client+"/"+role)
			}
		}
	}
	return roles
}

// converter builds the Caddyfile for a realm.
type converter struct {
	output           bytes.Buffer
	indent           int
	realm            *realm
	issuer           string
	check            func(caddyfile string) error
	currentEntry     string          // current entry, such as "user ada"
	summary          []string        // lines about omissions and changes
	clientIDs        map[string]bool // IDs of converted clients
	userNames        map[string]bool // names of converted users in lower case
	ambiguousGroups  map[string]bool // names that several groups have in common
	signIn           signInRequirements
	restrictedScopes map[string]bool // client scopes restricted to roles
}

// writeEntry writes the block of a user or client. It omits the entry if reason is set or check rejects the block.
func (c *converter) writeEntry(kind, name, reason string, write func()) bool {
	c.currentEntry = kind + " " + name
	defer func() { c.currentEntry = "realm" }()
	if reason == "" {
		length, reported := c.output.Len(), len(c.summary)
		c.writeNested(kind+" "+quote(name), write)
		err := c.check("{\n\tfhir {\n\t\tissuer " + c.issuer + "\n" + string(c.output.Bytes()[length:]) + "\t}\n}\n")
		if err == nil {
			return true
		}
		c.output.Truncate(length)
		c.summary = c.summary[:reported]
		reason = fmt.Sprintf("invalid configuration: %v", err)
	}
	c.report("Omitted", c.currentEntry+": "+reason)
	return false
}

// report adds a comment to the result and the same line to the summary.
func (c *converter) report(kind, text string) {
	c.writeRaw("# " + kind + ": " + commentText(text))
	c.summary = append(c.summary, strings.ToLower(kind)+": "+commentText(text))
}

// writeOption writes an option with the words that check accepts, or all words if check is nil. It omits options without words.
func (c *converter) writeOption(name string, check func(string) error, words ...string) {
	c.writeLine(name, c.acceptedWords(name, check, words...)...)
}

// acceptedWords returns the words that check accepts and that Caddy does not change. It reports the other words as omitted.
func (c *converter) acceptedWords(option string, check func(string) error, words ...string) (accepted []string) {
	for _, word := range words {
		var err error
		if check != nil && word != "" {
			err = check(word)
		}
		switch {
		case word == "":
		case err != nil:
			c.reportChange("%s omitted: %v", option, err)
		case isAlteredByCaddy(word):
			c.reportChange("%s omitted: %q contains characters that Caddy would replace", option, word)
		default:
			accepted = append(accepted, word)
		}
	}
	return accepted
}

func (c *converter) writeLine(option string, words ...string) {
	for _, word := range words {
		option += " " + quote(word)
	}
	if len(words) > 0 {
		c.writeRaw(option)
	}
}

func (c *converter) writeRaw(line string) {
	c.output.WriteString(strings.Repeat("\t", c.indent) + line + "\n")
}

// reportChange reports how the current entry differs from the entry in Keycloak.
func (c *converter) reportChange(format string, args ...any) {
	c.report("Changed", c.currentEntry+": "+fmt.Sprintf(format, args...))
}

// writeNested writes a block with the content that write writes.
func (c *converter) writeNested(head string, write func()) {
	c.writeRaw(strings.TrimSpace(head + " {"))
	c.indent++
	write()
	c.indent--
	c.writeRaw("}")
}

// unquotedWord matches words that need no quotes in any parser.
var unquotedWord = regexp.MustCompile(`^[A-Za-z0-9_.:/@+,=?&%$*~-]+$`)

// quote quotes a word so that the Caddyfile parser does not change it. Text between backquotes is literal.
func quote(word string) string {
	switch {
	case unquotedWord.MatchString(word):
		return word
	case !strings.ContainsAny(word, "\"\\"):
		return `"` + word + `"`
	}
	return "`" + word + "`"
}

// isAlteredByCaddy reports whether Caddy would change a word, such as a placeholder, an environment variable or a line break.
func isAlteredByCaddy(word string) bool {
	return strings.ContainsAny(word, "{}`") || strings.ContainsFunc(word, unicode.IsControl)
}

// commentText returns text that is safe in a comment, in which Caddy replaces environment variables, too.
func commentText(text string) string {
	text = strings.NewReplacer("{", "(", "}", ")").Replace(text)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
}
