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

// Rules determines which definitions, versions and codes an operation uses.
type Rules struct {
	// Versions selects the versions of code systems and value sets.
	Versions VersionRules

	// Supplements are the canonicals of required code system supplements (parameter useSupplement).
	Supplements []string

	// Date is the FHIR date as of which definitions are selected; newer ones are ignored.
	Date string

	// ActiveOnly excludes inactive codes. ExcludeNotForUI excludes abstract codes.
	ActiveOnly, ExcludeNotForUI parameters.Choice

	Parameters []parameters.Input // parameters of the request
}

// HasParameter reports whether the request contains a parameter.
func (r *Rules) HasParameter(name string) bool {
	return parameters.Find(r.Parameters, name) != nil
}

// cacheKey returns the part of a cache key that identifies the rules.
func (r *Rules) cacheKey() string {
	key := r.Versions.cacheKey()
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

// VersionRules selects versions of code systems and value sets. Each list contains canonicals (url|version).
type VersionRules struct {
	// Preferred is the system-version parameter: the version of a code system if the value set specifies none.
	Preferred []string

	// Required is the check-system-version parameter. Any other version of the code system causes an error.
	Required []string

	// Forced is the force-system-version parameter, which overrides the version in the value set.
	Forced []string

	// ValueSets is the default-valueset-version parameter: the version of a value set if a reference specifies none.
	ValueSets []string

	// Excluded is the exclude-system parameter: code systems, or versions of them, to exclude.
	Excluded []string

	// Match is the versionsMatch parameter: whether a code is the same code in all versions of its code system.
	Match parameters.Choice
}

// versionParameters are the parameter names in the order of [VersionRules.lists].
var versionParameters = []string{
	"system-version", "check-system-version", "force-system-version", "default-valueset-version", "exclude-system",
}

func (v *VersionRules) lists() [5]*[]string {
	return [...]*[]string{&v.Preferred, &v.Required, &v.Forced, &v.ValueSets, &v.Excluded}
}

// List returns the list for a parameter, or nil if the parameter has no list.
func (v *VersionRules) List(name string) *[]string {
	if i := slices.Index(versionParameters, name); i >= 0 {
		return v.lists()[i]
	}
	return nil
}

// Check validates a parameter that belongs to a list. It accepts any other parameter.
func (v *VersionRules) Check(in *parameters.Input) error {
	list := v.List(in.Name)
	if url, version := outcome.SplitCanonical(in.Value); list != nil && (url == "" || version == "" && list != &v.Excluded) {
		return outcome.BadRequest("invalid", "the parameter %s must be system|version", in.Name)
	}
	return nil
}

func (v *VersionRules) isEmpty() bool {
	return v.Preferred == nil && v.Required == nil && v.Forced == nil && v.ValueSets == nil && v.Excluded == nil && v.Match == parameters.Unset
}

// Cost returns the cost in steps of a lookup in the rules.
func (v *VersionRules) Cost() (steps int) {
	for _, list := range v.lists() {
		for _, rule := range *list {
			steps += 1 + len(rule)/budget.PlainBytesPerStep
		}
	}
	return steps
}

// cacheKey returns the part of a cache key that identifies the rules; "" if there are none.
func (v *VersionRules) cacheKey() string {
	if v.isEmpty() {
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

// Apply returns the code system version to use for an include with a declared version, and the rule that determined it. An
// empty version means any version.
func (v *VersionRules) Apply(url, declared string) (version string, rule appliedParameter) {
	if version, rule := VersionFor(v.Forced, url); version != "" {
		return version, appliedParameter{"force-system-version", rule}
	}
	if declared != "" {
		return declared, appliedParameter{}
	}
	return v.ApplyDefault(url)
}

// ApplyDefault is like Apply, but for an include without a version, and it ignores forced versions.
func (v *VersionRules) ApplyDefault(url string) (version string, rule appliedParameter) {
	if version, rule := VersionFor(v.Preferred, url); version != "" {
		return version, appliedParameter{"system-version", rule}
	}
	if version, rule := VersionFor(v.Required, url); version != "" {
		return version, appliedParameter{"check-system-version", rule}
	}
	return "", appliedParameter{}
}

// Excludes reports whether exclude-system matches a code system or its version.
func (v *VersionRules) Excludes(url, version string) bool {
	return slices.ContainsFunc(v.Excluded, func(reference string) bool {
		system, only := outcome.SplitCanonical(reference)
		return system == url && (only == "" || definitions.MatchesVersion(version, only))
	})
}

// VersionFor returns the version that list contains for a URL, and the matching list item.
func VersionFor(list []string, url string) (version, rule string) {
	for _, rule := range list {
		if u, version, ok := strings.Cut(rule, "|"); ok && u == url {
			return version, rule
		}
	}
	return "", ""
}

// selectCodeSystem selects the code system version for an include. In order of precedence, it is the forced, declared,
// preferred, required or latest version. The latest version is determined as of the locked date or the request's date, if any.
// index is None if the version is not loaded, requested is the requested version, and use reports whether the include applies.
// A probe selects the version itself.
func (c *Evaluator) selectCodeSystem(set *definitions.ConceptSet) (index uint32, requested string, use bool, err error) {
	if c.Probe != nil {
		if index, use = c.Probe.ChooseVersion(set); use {
			err = c.spend(8*(1+len(c.definitions.Systems.Versions(set.System))) + c.Probe.VersionCount/budget.PlainBytesPerStep)
		}
		return index, set.Version, use, err
	}
	if index, requested, err = c.resolveVersion(set.System, set.Version); err != nil {
		return index, requested, false, err
	}
	version := requested
	if index != definitions.None {
		version = c.definitions.Systems.CodeSystems[index].Version
	}
	return index, requested, !c.rules.Versions.Excludes(set.System, version), nil
}

func (c *Evaluator) resolveVersion(url, version string) (index uint32, requested string, err error) {
	if index := c.definitions.Systems.ContainedCodeSystem(c.Path[len(c.Path)-1], url, version); index != definitions.None {
		return index, version, nil
	}
	version, rule := c.rules.Versions.Apply(url, version)
	if rule.Name != "" {
		c.current.recordParameter(rule.Name, rule.Value)
	}
	index = c.definitions.Systems.CodeSystem(url, version)
	if date := cmp.Or(c.Path[len(c.Path)-1].LockedDate, c.rules.Date); version == "" && date != "" {
		index, err = c.definitions.Systems.CodeSystemAt(url, date)
	}
	required, _ := VersionFor(c.rules.Versions.Required, url)
	if err == nil && index != definitions.None && required != "" && !definitions.MatchesVersion(c.definitions.Systems.CodeSystems[index].Version, required) {
		err = NewWrongVersionError(c.definitions.Systems.CodeSystems[index], required)
	}
	return index, version, err
}

// NewWrongVersionError returns the error for a code system version that violates check-system-version.
func NewWrongVersionError(cs *definitions.CodeSystem, required string) *outcome.Error {
	return outcome.New(http.StatusUnprocessableEntity, "exception", "version-error", "VALUESET_VERSION_CHECK",
		fmt.Sprintf("The version '%s' is not allowed for system '%s': required to be '%s' by a version-check parameter", cs.Version, cs.URL, required))
}

// importedValueSet returns a contained or loaded value set. A parameter may select the version if reference has none.
func (c *Evaluator) importedValueSet(reference string) (*definitions.ValueSet, error) {
	importing := c.Path[len(c.Path)-1]
	among := c.rules.Versions.Cost() + importing.SumOfContainers(func(vs *definitions.ValueSet) int { return len(vs.Contained) })
	if err := c.spend(1 + among); err != nil {
		return nil, err
	}
	if vs, ok := importing.ContainedValueSet(reference); ok {
		return vs, nil
	}
	url, version := outcome.SplitCanonical(reference)
	if version == "" {
		var rule string
		if version, rule = VersionFor(c.rules.Versions.ValueSets, url); version != "" {
			reference = outcome.Canonical(url, version)
			c.current.recordParameter("default-valueset-version", rule)
		}
	}
	if definitions.IsWildcard(version) || c.rules.Date != "" {
		if err := c.spend(len(c.definitions.ValueSets.List)); err != nil {
			return nil, err
		}
	}
	if vs, ok := c.definitions.ResolveValueSet(reference, c.rules.Date); ok {
		return vs, nil
	}
	id := "VS_EXP_IMPORT_UNK"
	if version != "" {
		id = "VS_EXP_IMPORT_UNK_PINNED"
	}
	e := outcome.New(http.StatusUnprocessableEntity, "not-found", "not-found", id,
		fmt.Sprintf("value set %s, imported by %s, is not loaded", reference, importing.Canonical()))
	e.Err, e.Missing = outcome.ErrIncomplete, outcome.MissingOf("ValueSet", reference, "")
	return nil, e
}

// ValueSetFor returns the value set of an operation and the Set to expand it in: an overlay if it is in the request.
func (c *CodeListCache) ValueSetFor(l *definitions.Set, ref *ValueSetRef, rules *Rules, b *budget.Budget) (_ *definitions.Set, vs *definitions.ValueSet, err error) {
	if ref.ValueSet != nil {
		if err := b.ChargeRead(len(ref.ValueSet)); err != nil {
			return nil, nil, err
		}
	}
	if err := definitions.CheckDate(rules.Date); err != nil {
		return nil, nil, err
	}
	switch {
	case ref.ID != "":
		vs, err = findByID(l, ref)
	case ref.ValueSet != nil:
		return c.inlineValueSet(l, ref.ValueSet)
	case ref.URL != "":
		vs, err = findByURL(l, ref, rules)
	case ref.Context != "":
		vs, err = findByContext(l, ref, rules)
	default:
		err = outcome.BadRequest("required", "the parameter url is required: the canonical of the value set to expand (or else valueSet, or context)")
	}
	return l, vs, err
}

// findByID returns the value set with the ID in ref. If ref also has a URL, it must match.
func findByID(d *definitions.Set, ref *ValueSetRef) (*definitions.ValueSet, error) {
	vs, ok := d.ValueSets.ValueSetByID(ref.ID)
	if !ok {
		return nil, outcome.NewUnknown("", "no value set has the id "+ref.ID, outcome.MissingDefinition{ResourceType: "ValueSet", ID: ref.ID})
	}
	if ref.URL != "" && !vs.MatchesCanonical(ref.URL) {
		return nil, outcome.BadRequest("invalid", "the value set with the id %s is %s, not %s", ref.ID, vs.Canonical(), ref.URL)
	}
	return vs, nil
}

// findByURL returns the value set with the URL and version in ref.
func findByURL(d *definitions.Set, ref *ValueSetRef, rules *Rules) (*definitions.ValueSet, error) {
	reference := ref.URL
	if url, version := outcome.SplitCanonical(ref.URL); ref.Version != "" {
		if version != "" && version != ref.Version {
			return nil, outcome.BadRequest("invalid", "url has version %s, but valueSetVersion is %s", version, ref.Version)
		}
		reference = outcome.Canonical(url, ref.Version)
	} else if version == "" {
		if version, _ := VersionFor(rules.Versions.ValueSets, url); version != "" {
			reference = outcome.Canonical(url, version)
		}
	}
	if vs, ok := d.ResolveValueSet(reference, rules.Date); ok {
		return vs, nil
	}
	if _, ok := d.ValueSets.Find(reference); ok {
		return nil, definitions.NewOnlyLaterVersionsError("value set", reference, rules.Date)
	}
	text := fmt.Sprintf("A definition for the value Set '%s' could not be found", reference)
	return nil, outcome.NewUnknown("Unable_to_resolve_value_Set_", text, outcome.MissingOf("ValueSet", reference, "")...)
}

// findByContext returns the value set bound to the element of a profile in ref.
func findByContext(d *definitions.Set, ref *ValueSetRef, rules *Rules) (*definitions.ValueSet, error) {
	reference, ok := d.ValueSets.BoundValueSet(ref.Context)
	if !ok {
		return nil, outcome.NewUnknown("", "no value set is bound to the context "+ref.Context)
	}
	return findByURL(d, &ValueSetRef{URL: reference, Version: ref.Version}, rules)
}

// ValueSetRef refers to a value set by ID, resource, URL or context. The first nonempty field is used.
type ValueSetRef struct {
	// ID is the resource ID in an instance-level operation. If URL is set too, it must match the resource.
	ID string

	// ValueSet is the resource in JSON.
	ValueSet jsontext.Value

	// URL is the canonical: url or url|version.
	URL string

	// Version is the requested version if URL has none.
	Version string

	// Context is an element of a profile as url#path. The value set is the one bound to the element.
	Context string
}
