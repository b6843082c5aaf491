package compose

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

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

// codeSystem chooses the code system version for an include: the forced one, the include's own, the preferred, the
// required or the latest, in this order; the latest is as of the locked date or the request's date. index is none if
// that version is not here; wanted is the version that was looked for, and use says that the include counts. With a probe,
// the code's version counts too.
func (c *Evaluator) codeSystem(set *definitions.ConceptSet) (index uint32, wanted string, use bool, err error) {
	if c.Probe != nil {
		if index, use = c.Probe.Choose(set); use {
			err = c.spend(8*(1+len(c.library.Systems.Versions(set.System))) + c.Probe.Chosen/budget.PlainBytes)
		}
		return index, set.Version, use, err
	}
	if index, wanted, err = c.version(set.System, set.Version); err != nil {
		return index, wanted, false, err
	}
	version := wanted
	if index != definitions.None {
		version = c.library.Systems.CodeSystems[index].Version
	}
	return index, wanted, !c.rules.Versions.Excludes(set.System, version), nil
}

func (c *Evaluator) version(url, version string) (index uint32, wanted string, err error) {
	if index := c.library.Systems.ContainedCodeSystem(c.Path[len(c.Path)-1], url, version); index != definitions.None {
		return index, version, nil
	}
	version, rule := c.rules.Versions.Apply(url, version)
	if rule.Name != "" {
		c.used.apply(rule.Name, rule.Value)
	}
	index = c.library.Systems.CodeSystem(url, version)
	if date := cmp.Or(c.Path[len(c.Path)-1].LockedDate, c.rules.Date); version == "" && date != "" {
		index, err = c.library.Systems.CodeSystemAt(url, date)
	}
	required, _ := VersionFor(c.rules.Versions.Required, url)
	if err == nil && index != definitions.None && required != "" && !definitions.MatchesVersion(c.library.Systems.CodeSystems[index].Version, required) {
		err = WrongVersion(c.library.Systems.CodeSystems[index], required)
	}
	return index, version, err
}

// WrongVersion is the error for a code system in another version than check-system-version demands.
func WrongVersion(cs *definitions.CodeSystem, required string) *outcome.Error {
	return outcome.New(http.StatusUnprocessableEntity, "exception", "version-error", "VALUESET_VERSION_CHECK",
		fmt.Sprintf("The version '%s' is not allowed for system '%s': required to be '%s' by a version-check parameter", cs.Version, cs.URL, required))
}

// importedValueSet finds a value set that an include names, contained or in the library. A parameter may choose the
// version if the reference has none.
func (c *Evaluator) importedValueSet(reference string) (*definitions.ValueSet, error) {
	importing := c.Path[len(c.Path)-1]
	among := c.rules.Versions.Cost() + importing.SumOfContainers(func(vs *definitions.ValueSet) int { return len(vs.Contained) })
	if err := c.spend(1 + among); err != nil {
		return nil, err
	}
	if vs, ok := importing.ContainedValueSet(reference); ok {
		return vs, nil
	}
	url, version := outcome.Split(reference)
	if version == "" {
		var rule string
		if version, rule = VersionFor(c.rules.Versions.ValueSets, url); version != "" {
			reference = outcome.Canonical(url, version)
			c.used.apply("default-valueset-version", rule)
		}
	}
	if definitions.IsWildcard(version) || c.rules.Date != "" {
		if err := c.spend(len(c.library.ValueSets.List)); err != nil {
			return nil, err
		}
	}
	if vs, ok := c.library.AnyValueSet(reference, c.rules.Date); ok {
		return vs, nil
	}
	id := "VS_EXP_IMPORT_UNK"
	if version != "" {
		id = "VS_EXP_IMPORT_UNK_PINNED"
	}
	e := outcome.New(http.StatusUnprocessableEntity, "not-found", "not-found", id,
		fmt.Sprintf("value set %s, which %s imports, is not here", reference, importing.Canonical()))
	e.Err, e.Missing = outcome.ErrIncomplete, outcome.MissingOf("ValueSet", reference, "")
	return nil, e
}

// ValueSetFor finds the value set of an operation, and the library to expand it in: an overlay if the value set came
// with the request.
func (c *CodeListCache) ValueSetFor(l *definitions.Set, ref *ValueSetRef, rules *Rules, b *budget.Budget) (_ *definitions.Set, vs *definitions.ValueSet, err error) {
	if ref.ValueSet != nil {
		if err := b.Read(len(ref.ValueSet)); err != nil {
			return nil, nil, err
		}
	}
	if err := definitions.CheckDate(rules.Date); err != nil {
		return nil, nil, err
	}
	switch {
	case ref.ID != "":
		vs, err = byInstance(l, ref)
	case ref.ValueSet != nil:
		return c.inline(l, ref.ValueSet)
	case ref.URL != "":
		vs, err = byURL(l, ref, rules)
	case ref.Context != "":
		vs, err = byContext(l, ref, rules)
	default:
		err = outcome.BadRequest("required", "the parameter url is required: the canonical of the value set to expand (or else valueSet, or context)")
	}
	return l, vs, err
}

// byInstance finds a value set by its id. A url beside the id must match.
func byInstance(d *definitions.Set, ref *ValueSetRef) (*definitions.ValueSet, error) {
	vs, ok := d.ValueSets.ValueSetByID(ref.ID)
	if !ok {
		return nil, outcome.Unknown("", "there is no value set with the id "+ref.ID, outcome.Missing{Kind: "ValueSet", ID: ref.ID})
	}
	if ref.URL != "" && !vs.IsNamed(ref.URL) {
		return nil, outcome.BadRequest("invalid", "the value set with the id %s is %s, not %s", ref.ID, vs.Canonical(), ref.URL)
	}
	return vs, nil
}

// byURL finds a value set by its url, in the version asked for.
func byURL(d *definitions.Set, ref *ValueSetRef, rules *Rules) (*definitions.ValueSet, error) {
	reference := ref.URL
	if url, version := outcome.Split(ref.URL); ref.Version != "" {
		if version != "" && version != ref.Version {
			return nil, outcome.BadRequest("invalid", "url has version %s, but valueSetVersion is %s", version, ref.Version)
		}
		reference = outcome.Canonical(url, ref.Version)
	} else if version == "" {
		if version, _ := VersionFor(rules.Versions.ValueSets, url); version != "" {
			reference = outcome.Canonical(url, version)
		}
	}
	if vs, ok := d.AnyValueSet(reference, rules.Date); ok {
		return vs, nil
	}
	if _, ok := d.ValueSets.Find(reference); ok {
		return nil, definitions.NotAsOf("value set", reference, rules.Date)
	}
	text := fmt.Sprintf("A definition for the value Set '%s' could not be found", reference)
	return nil, outcome.Unknown("Unable_to_resolve_value_Set_", text, outcome.MissingOf("ValueSet", reference, "")...)
}

// byContext finds the value set bound to an element of a profile.
func byContext(d *definitions.Set, ref *ValueSetRef, rules *Rules) (*definitions.ValueSet, error) {
	reference, ok := d.ValueSets.BoundTo(ref.Context)
	if !ok {
		return nil, outcome.Unknown("", "no value set is known for the context "+ref.Context)
	}
	return byURL(d, &ValueSetRef{URL: reference, Version: ref.Version}, rules)
}

// ValueSetRef names a value set by id, as a resource, by url or by context. The first that is not empty counts.
type ValueSetRef struct {
	// ID is the id of the resource, for an operation on an instance. A URL beside it must be that resource's.
	ID string

	// ValueSet is the value set itself, in JSON.
	ValueSet jsontext.Value

	// URL is the canonical, url or url|version.
	URL string

	// Version is the version, if URL has none.
	Version string

	// Context is an element of a profile, as url#path, whose binding names the value set.
	Context string
}
