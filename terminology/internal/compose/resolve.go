package compose

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

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
