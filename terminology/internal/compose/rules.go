package compose

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Rules say which definitions and versions an operation uses, and which of their codes count.
type Rules struct {
	// Versions chooses versions of code systems and value sets.
	Versions VersionRules

	// Supplements are the canonicals of the code system supplements that must be used, as useSupplement.
	Supplements []string

	// Date is a FHIR date: definitions of a later date do not count.
	Date string

	// ActiveOnly says whether to leave out inactive codes, ExcludeNotForUI whether to leave out abstract ones.
	ActiveOnly, ExcludeNotForUI parameters.Choice

	Given []parameters.Input // the parameters as sent
}

// Sent reports whether the request had a parameter.
func (r *Rules) Sent(name string) bool {
	return parameters.Find(r.Given, name) != nil
}

// key identifies rules in the cache.
func (r *Rules) key() string {
	key := r.Versions.key()
	if len(r.Supplements) > 0 || r.Date != "" {
		key += "\x02" + strings.Join(r.Supplements, "\x01") + "\x02" + r.Date
	}
	if r.ActiveOnly == parameters.Yes {
		key += "\x03"
	}
	if r.ExcludeNotForUI == parameters.Yes {
		key += "\x04"
	}
	return key
}

// VersionRules choose versions of code systems and value sets. Each list holds canonicals, url|version.
type VersionRules struct {
	// Preferred is system-version: the code system version to use if the value set names none.
	Preferred []string

	// Required is check-system-version: any other version of the code system is an error.
	Required []string

	// Forced is force-system-version: the version of a code system, whatever a value set says.
	Forced []string

	// ValueSets is default-valueset-version: the value set version to use if a reference names none.
	ValueSets []string

	// Excluded is exclude-system: code systems, or versions of them, whose codes do not count.
	Excluded []string

	// Match is versionsMatch: whether a code is the same one in all versions of its code system.
	Match parameters.Choice
}

// versionParameters are the parameters of lists.
var versionParameters = []string{
	"system-version", "check-system-version", "force-system-version", "default-valueset-version", "exclude-system",
}

func (v *VersionRules) lists() [5]*[]string {
	return [...]*[]string{&v.Preferred, &v.Required, &v.Forced, &v.ValueSets, &v.Excluded}
}

// List returns the list of a parameter, or nil.
func (v *VersionRules) List(name string) *[]string {
	if i := slices.Index(versionParameters, name); i >= 0 {
		return v.lists()[i]
	}
	return nil
}

// Check checks a parameter if it is one of these rules.
func (v *VersionRules) Check(in *parameters.Input) error {
	list := v.List(in.Name)
	if url, version := outcome.Split(in.Value); list != nil && (url == "" || version == "" && list != &v.Excluded) {
		return outcome.BadRequest("invalid", "the parameter %s must be system|version", in.Name)
	}
	return nil
}

func (v *VersionRules) none() bool {
	return v.Preferred == nil && v.Required == nil && v.Forced == nil && v.ValueSets == nil && v.Excluded == nil && v.Match == parameters.Unset
}

// Cost is how many steps a lookup among the rules takes.
func (v *VersionRules) Cost() (steps int) {
	for _, list := range v.lists() {
		for _, rule := range *list {
			steps += 1 + len(rule)/budget.PlainBytes
		}
	}
	return steps
}

// key identifies rules in a cache.
func (v *VersionRules) key() string {
	if v.none() {
		return ""
	}
	var key strings.Builder
	for _, list := range v.lists() {
		key.WriteString(strings.Join(*list, "\x01"))
		key.WriteByte(0)
	}
	key.WriteByte('0' + byte(v.Match))
	return key.String()
}

// Apply returns the version of a code system where an include declares one, or "" for none, and the rule that says so, if
// any.
func (v *VersionRules) Apply(url, declared string) (version string, rule applied) {
	if version, rule := VersionFor(v.Forced, url); version != "" {
		return version, applied{"force-system-version", rule}
	}
	if declared != "" {
		return declared, applied{}
	}
	return v.Usual(url)
}

// Usual is apply for an include that declares no version, without those that are forced.
func (v *VersionRules) Usual(url string) (version string, rule applied) {
	if version, rule := VersionFor(v.Preferred, url); version != "" {
		return version, applied{"system-version", rule}
	}
	if version, rule := VersionFor(v.Required, url); version != "" {
		return version, applied{"check-system-version", rule}
	}
	return "", applied{}
}

// Excludes reports whether exclude-system names a code system or its version.
func (v *VersionRules) Excludes(url, version string) bool {
	return slices.ContainsFunc(v.Excluded, func(reference string) bool {
		system, only := outcome.Split(reference)
		return system == url && (only == "" || definitions.MatchesVersion(version, only))
	})
}

// VersionFor returns the version that a list has for a url, and that item of the list.
func VersionFor(list []string, url string) (version, rule string) {
	for _, rule := range list {
		if u, version, ok := strings.Cut(rule, "|"); ok && u == url {
			return version, rule
		}
	}
	return "", ""
}
