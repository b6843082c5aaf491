package terminology

import "strings"

// Choice is a parameter that is true, false, or not given.
type Choice uint8

// What a [Choice] can be.
const (
	// Unset is a parameter that is not given.
	Unset Choice = iota

	// No is a parameter that is false.
	No

	// Yes is a parameter that is true.
	Yes
)

// set reads a parameter.
func (c *Choice) set(in *input) error {
	switch in.value {
	case "true":
		*c = Yes
	case "false":
		*c = No
	default:
		return badRequest("invalid", "the parameter %s must be true or false", in.name)
	}
	return nil
}

// Rules say which definitions and versions an operation uses, and which of their codes count.
type Rules struct {
	// Versions chooses versions of code systems and value sets.
	Versions VersionRules

	// Supplements are the canonicals of the supplements to code systems that must be used, as useSupplement.
	Supplements []string

	// Date is a date of FHIR: definitions of a later date do not count.
	Date string

	// ActiveOnly says whether inactive codes are left out, and ExcludeNotForUI whether abstract ones are.
	ActiveOnly, ExcludeNotForUI Choice

	given []input // the parameters of the request, as they were sent
}

// sent reports whether a parameter was in the request.
func (r *Rules) sent(name string) bool {
	_, ok := find(r.given, name)
	return ok
}

// key tells rules from others, for the cache.
func (r *Rules) key() string {
	key := r.Versions.key()
	if len(r.Supplements) > 0 || r.Date != "" {
		key += "\x02" + strings.Join(r.Supplements, "\x01") + "\x02" + r.Date
	}
	if r.ActiveOnly == Yes {
		key += "\x03"
	}
	if r.ExcludeNotForUI == Yes {
		key += "\x04"
	}
	return key
}

// VersionRules choose versions of code systems and value sets. Each is a list of url|version.
type VersionRules struct {
	// Preferred is system-version: the version of a code system where a value set says none.
	Preferred []string

	// Required is check-system-version: any other version of the code system is an error.
	Required []string

	// Forced is force-system-version: the version of a code system, whatever a value set says.
	Forced []string

	// ValueSets is default-valueset-version: the version of a value set where a reference says none.
	ValueSets []string

	// Excluded is exclude-system: code systems, or versions of them, of which no code counts.
	Excluded []string

	// Match is versionsMatch: whether a code is the same one in all versions of its code system.
	Match Choice
}

// lists returns the lists of rules.
func (v *VersionRules) lists() [5]*[]string {
	return [...]*[]string{&v.Preferred, &v.Required, &v.Forced, &v.ValueSets, &v.Excluded}
}

// list returns the list that a parameter adds to, or nil.
func (v *VersionRules) list(name string) *[]string {
	switch name {
	case "system-version":
		return &v.Preferred
	case "check-system-version":
		return &v.Required
	case "force-system-version":
		return &v.Forced
	case "default-valueset-version":
		return &v.ValueSets
	case "exclude-system":
		return &v.Excluded
	}
	return nil
}

// check checks a parameter, if it is one of these rules.
func (v *VersionRules) check(in *input) error {
	list := v.list(in.name)
	if url, version := splitCanonical(in.value); list != nil && (url == "" || version == "" && list != &v.Excluded) {
		return badRequest("invalid", "the parameter %s must be system|version", in.name)
	}
	return nil
}

// none reports whether there are no rules.
func (v *VersionRules) none() bool {
	return v.Preferred == nil && v.Required == nil && v.Forced == nil && v.ValueSets == nil && v.Excluded == nil && v.Match == Unset
}

// cost is how many steps it takes to look for a code system or value set among the rules.
func (v *VersionRules) cost() (steps int) {
	if v.none() {
		return 0
	}
	for _, list := range v.lists() {
		for _, rule := range *list {
			steps += 1 + len(rule)/plainBytes
		}
	}
	return steps
}

// key tells rules from others, for a cache.
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

// versionFor returns the version that a list has for a url, and the member of the list.
func versionFor(list []string, url string) (version, rule string) {
	for _, rule := range list {
		if u, version, ok := strings.Cut(rule, "|"); ok && u == url {
			return version, rule
		}
	}
	return "", ""
}
