package compose

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// codeSystem chooses the code system version for an include: the forced one, the include's own, the preferred, the
// required or the latest, in this order; the latest is as of the locked date or the request's date. index is none if
// that version is not here; wanted is the version that was looked for.
func (c *Composer) codeSystem(url, version string) (index uint32, wanted string, err error) {
	if index := c.Library.Systems.ContainedCodeSystem(c.Path[len(c.Path)-1], url, version); index != definitions.None {
		return index, version, nil
	}
	version, rule := c.Rules.Versions.Apply(url, version)
	if rule.Name != "" {
		c.Used.apply(rule.Name, rule.Value)
	}
	index = c.Library.Systems.CodeSystem(url, version)
	if date := cmp.Or(c.Path[len(c.Path)-1].LockedDate, c.Rules.Date); version == "" && date != "" {
		index, err = c.Library.Systems.CodeSystemAt(url, date)
	}
	required, _ := VersionFor(c.Rules.Versions.Required, url)
	if err == nil && index != definitions.None && required != "" && !definitions.MatchesVersion(c.Library.Systems.CodeSystems[index].Version, required) {
		err = WrongVersion(c.Library.Systems.CodeSystems[index], required)
	}
	return index, version, err
}

// WrongVersion is the error for a code system in another version than check-system-version demands.
func WrongVersion(cs *definitions.CodeSystem, required string) *outcome.Error {
	return outcome.New(http.StatusUnprocessableEntity, "exception", "version-error", "VALUESET_VERSION_CHECK",
		fmt.Sprintf("The version '%s' is not allowed for system '%s': required to be '%s' by a version-check parameter", cs.Version, cs.URL, required))
}

// IsExcludedSystem reports whether exclude-system names a code system or its version.
func (c *Composer) IsExcludedSystem(url, version string, index uint32) bool {
	if index != definitions.None {
		version = c.Library.Systems.CodeSystems[index].Version
	}
	return slices.ContainsFunc(c.Rules.Versions.Excluded, func(reference string) bool {
		system, only := outcome.Split(reference)
		return system == url && (only == "" || definitions.MatchesVersion(version, only))
	})
}
