package validate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// candidate is an include that may contain a coding.
type candidate struct {
	versionChoice
	member *memberEntry
}

// candidateFinder finds the includes of a value set that may contain a coding.
type candidateFinder struct {
	definitions     *definitions.Set
	valueSet        *definitions.ValueSet // nil: check the code system only
	rules           *compose.Rules
	budget          *budget.Budget
	versions        versionChooser
	membershipOnly  bool
	searchedImports []*definitions.ValueSet // imported value sets that were searched
	mismatchReasons []string                // why the last coding does not match filters
}

// candidates returns the includes that may contain a coding, or only the code system if there is no value set.
func (v *candidateFinder) candidates(c *parameters.Coding) ([]candidate, error) {
	if v.valueSet == nil {
		list := []candidate{{versionChoice: v.versions.choose(c, "", v.rules.Date)}}
		if list[0].index == definitions.None {
			return list, nil
		}
		return list, v.definitions.Systems.CodeSystems[list[0].index].CheckUsable("code system")
	}
	in := &includeSearch{finder: v, coding: c, evaluator: compose.NewEvaluator(v.definitions, v.rules, v.budget)}
	in.evaluator.Probe = &compose.Probe{Code: []byte(c.Code), ChooseVersion: in.choose}
	if err := in.evaluator.CheckImports(v.valueSet, make(map[*definitions.ValueSet]bool)); err != nil {
		return nil, err
	}
	members, err := in.evaluator.Evaluate(v.valueSet)
	if err != nil {
		return nil, err
	}
	v.searchedImports, v.mismatchReasons = in.evaluator.Probe.SearchedValueSets, in.evaluator.Probe.MismatchReasons
	return in.list, in.assignMembers(members.Entries)
}

// includeSearch collects candidates while its evaluator searches for a coding.
type includeSearch struct {
	evaluator *compose.Evaluator
	finder    *candidateFinder
	coding    *parameters.Coding
	list      []candidate
}

// choose returns the code system version to use for an include, and whether the include may contain the coding.
func (in *includeSearch) choose(set *definitions.ConceptSet) (uint32, bool) {
	c, l, path := in.coding, in.finder.definitions, in.evaluator.Path
	within := path[len(path)-1]
	if index := l.Systems.ContainedCodeSystem(within, set.System, set.Version); index != definitions.None {
		cs := l.Systems.CodeSystems[index]
		in.list = append(in.list, candidate{versionChoice: versionChoice{index: index, matches: c.Version == "" || definitions.MatchesVersion(cs.Version, c.Version)}})
		return index, cs.URL == c.System
	}
	if set.System != c.System || in.finder.rules.Versions.Excludes(set.System, set.Version) {
		return l.Systems.CodeSystem(set.System, set.Version), set.System == c.System
	}
	choice := in.finder.versions.choose(c, set.Version, cmp.Or(within.LockedDate, in.finder.rules.Date))
	if set.IsEnumerated {
		choice.adaptToEnumerated()
	}
	choice.acceptsAnyCode = choice.index == definitions.None && !set.IsEnumerated && !in.finder.membershipOnly
	if !slices.ContainsFunc(in.list, func(o candidate) bool { return o.index == choice.index && len(o.issues) == len(choice.issues) }) {
		in.list = append(in.list, candidate{versionChoice: choice})
	}
	in.evaluator.Probe.VersionCount = len(in.list)
	return choice.index, true
}

// assignMembers assigns the entries found for the coding to the candidates with the same code system version.
func (in *includeSearch) assignMembers(members []definitions.Entry) error {
	if err := in.finder.budget.Charge(len(members) * len(in.list) / budget.PlainBytesPerStep); err != nil {
		return err
	}
	for _, e := range members {
		if at := slices.IndexFunc(in.list, func(o candidate) bool { return o.index == e.CodeSystem && o.member == nil }); at >= 0 {
			in.list[at].member = in.newMemberEntry(e)
		}
	}
	return nil
}

// memberEntry is the entry for a coding that an expansion would contain.
type memberEntry struct {
	definitions.LocatedEntry
	isExcluded bool // the code is inactive, and inactive codes are excluded
}

func (in *includeSearch) newMemberEntry(e definitions.Entry) *memberEntry {
	onlyActive := in.finder.valueSet.ActiveOnly || in.finder.rules.ActiveOnly == parameters.Yes
	return &memberEntry{LocatedEntry: in.evaluator.Locate(e), isExcluded: onlyActive && in.evaluator.IsInactive(e)}
}

// bestCandidate returns the candidate with the highest rank. If there are no candidates, it returns the version of the coding.
func (v *candidateFinder) bestCandidate(c *parameters.Coding, list []candidate) (versionChoice, *memberEntry, error) {
	best, highest := -1, -1
	for i := range list {
		n, err := v.rank(c, &list[i])
		if err != nil {
			return versionChoice{}, nil, err
		}
		if n > highest {
			best, highest = i, n
		}
	}
	if best < 0 {
		choice := versionChoice{index: v.versions.codeSystem(c.System, c.Version), matches: true}
		if versions := v.definitions.Systems.LoadedVersions(c.System); choice.index == definitions.None && c.Version != "" && len(versions) > 0 {
			choice.add(newUnknownVersionIssue(c, c.Version, versions))
			choice.missingVersion = outcome.Canonical(c.System, c.Version)
			choice.index = v.versions.codeSystem(c.System, "")
		}
		return choice, nil, nil
	}
	return list[best].versionChoice, list[best].member, nil
}

// rank returns how well a candidate fits a coding, considering version, membership and display in this order.
func (v *candidateFinder) rank(c *parameters.Coding, o *candidate) (n int, err error) {
	if o.matches && !o.hasErrors() {
		n += 8
	}
	if o.member == nil {
		return n, nil
	}
	if n += 2; !o.member.isExcluded {
		n += 4
	}
	texts := v.definitions.AppendTexts(nil, o.member.LocatedEntry, v.valueSet.Language, nil)
	if slices.ContainsFunc(texts, func(t codesystem.Text) bool { return equalDisplay(t.Value, c.Display) }) {
		n++
	}
	return n, v.budget.ChargeComparisons(texts)
}

// versionChoice is the code system version that an include selects for a coding, with the issues that this causes.
type versionChoice struct {
	index          uint32 // code system; None if it is not loaded
	matches        bool   // the coding has no version, or the include permits its version
	issues         []codingIssue
	missingVersion string // canonical of the missing version; "" if none is missing
	acceptsAnyCode bool   // the code system is missing, and the include does not enumerate codes
	isSubstitute   bool   // the include's version is missing, and index is a different version

	uncheckedVersion string // version of an enumerated code that could not be checked because it is missing
}

// adaptToEnumerated adapts a choice to an include that enumerates its codes and so does not need the code system. A missing
// version is not an error and is not replaced by another version.
func (c *versionChoice) adaptToEnumerated() {
	if !c.isSubstitute {
		return
	}
	_, c.uncheckedVersion = outcome.SplitCanonical(c.missingVersion)
	c.issues = slices.DeleteFunc(c.issues, func(n codingIssue) bool {
		return n.MessageID == unknownVersionID || n.MessageID == unknownVersionNoneID
	})
	c.index, c.missingVersion, c.matches, c.isSubstitute = definitions.None, "", !c.hasErrors(), false
}

// Message IDs used by newUnknownVersionIssue.
const (
	unknownVersionID     = "UNKNOWN_CODESYSTEM_VERSION"
	unknownVersionNoneID = "UNKNOWN_CODESYSTEM_VERSION_NONE"
)

// versionChooser selects the code system version to use for a coding.
type versionChooser struct {
	systems    *definitions.SystemTable
	rules      *compose.Rules
	inValueSet bool // whether the validation is against a value set
}

// choose returns the code system version for a coding. This is the version determined by the include and the parameters, or the
// coding's version if they permit it. If no version is specified, it is the latest version, as of date unless that is empty.
func (v *versionChooser) choose(c *parameters.Coding, declared, date string) versionChoice {
	effectiveVersion, rule := v.rules.Versions.Apply(c.System, declared)
	choice := versionChoice{index: v.codeSystem(c.System, effectiveVersion), matches: true}
	if effectiveVersion == "" && date != "" {
		index, _ := v.systems.CodeSystemAt(c.System, date) // None if there is an error
		choice.index = v.requireContent(index)
	}
	own := definitions.None
	if c.Version != "" {
		own = v.codeSystem(c.System, c.Version)
		v.compareVersions(c, &choice, own, declared, effectiveVersion, rule.Name != "")
	}
	if choice.index == definitions.None && effectiveVersion != "" && !v.hasLookupOnly(c.System, effectiveVersion) {
		choice.add(newUnknownVersionIssue(c, effectiveVersion, v.systems.LoadedVersions(c.System)))
		choice.missingVersion = outcome.Canonical(c.System, effectiveVersion)
		choice.index = own
		if own == definitions.None {
			defaultVersion, _ := v.rules.Versions.ApplyDefault(c.System)
			choice.index = v.codeSystem(c.System, defaultVersion)
		}
		choice.matches, choice.isSubstitute = false, true
	}
	required, _ := compose.VersionFor(v.rules.Versions.Required, c.System)
	if choice.index != definitions.None && required != "" && !definitions.MatchesVersion(v.systems.CodeSystems[choice.index].Version, required) {
		e := compose.NewWrongVersionError(v.systems.CodeSystems[choice.index], required)
		choice.add(codingIssue{Issue: e.Issues()[0], part: "version", inMessage: true})
	}
	return choice
}

// codeSystem returns the index of a code system with concepts, or None.
func (v *versionChooser) codeSystem(url, version string) uint32 {
	return v.requireContent(v.systems.CodeSystem(url, version))
}

// requireContent returns index, or None if the content of the code system is not present (R4 CodeSystem.content).
func (v *versionChooser) requireContent(index uint32) uint32 {
	if index == definitions.None {
		return definitions.None
	}
	if content := v.systems.CodeSystems[index].Content; !content.HasConcepts() && content != definitions.ContentSupplement {
		return definitions.None
	}
	return index
}

// hasLookupOnly reports whether a lookup-only substitute for the given version of a code system is loaded.
func (v *versionChooser) hasLookupOnly(url, version string) bool {
	return slices.ContainsFunc(v.systems.Versions(url), func(index uint32) bool { return v.systems.CodeSystems[index].IsLookupOnlyFor(version) })
}

// compareVersions records mismatches between the versions of an include and a coding. The coding's code system is own.
func (v *versionChooser) compareVersions(c *parameters.Coding, choice *versionChoice, own uint32, declared, effectiveVersion string, changed bool) {
	switch {
	case own != definitions.None && (effectiveVersion == "" || definitions.MatchesVersion(v.systems.CodeSystems[own].Version, effectiveVersion)):
		choice.index = own
		return
	case effectiveVersion == "" && choice.index != definitions.None && v.inValueSet:
		choice.addMismatch("warning", "VALUESET_VALUE_MISMATCH_DEFAULT",
			"The code system '%s' version '%s' for the versionless include in the ValueSet include is different to the one in the value ('%s')",
			c.System, v.systems.CodeSystems[choice.index].Version, c.Version)
	case effectiveVersion != "" && changed:
		choice.addMismatch("error", "VALUESET_VALUE_MISMATCH_CHANGED",
			"The code system '%s' version '%s' resulting from the version '%s' in the ValueSet include is different to the one in the value ('%s')",
			c.System, effectiveVersion, declared, c.Version)
	case effectiveVersion != "":
		choice.addMismatch("error", "VALUESET_VALUE_MISMATCH",
			"The code system '%s' version '%s' in the ValueSet include is different to the one in the value ('%s')", c.System, effectiveVersion, c.Version)
	}
	choice.matches = false
	if own == definitions.None && len(v.systems.LoadedVersions(c.System)) > 0 {
		choice.add(newUnknownVersionIssue(c, c.Version, v.systems.LoadedVersions(c.System)))
		choice.missingVersion = outcome.Canonical(c.System, c.Version)
	}
}

func (c *versionChoice) add(n codingIssue) { c.issues = append(c.issues, n) }

func (c *versionChoice) hasErrors() bool { return slices.ContainsFunc(c.issues, codingIssue.isError) }

// addMismatch adds an issue about a coding with a version that differs from the value set's.
func (c *versionChoice) addMismatch(severity, id, format string, args ...any) {
	c.add(codingIssue{part: "version", inMessage: severity == "error", Issue: outcome.Issue{
		Severity: severity, Code: "invalid", TxCode: "vs-invalid", MessageID: id, Text: fmt.Sprintf(format, args...),
	}})
}

// newUnknownVersionIssue returns the issue for a missing code system version. versions are the loaded versions.
func newUnknownVersionIssue(c *parameters.Coding, version string, versions []string) codingIssue {
	id := unknownVersionID
	if len(versions) == 0 {
		id = unknownVersionNoneID
	}
	return codingIssue{part: "system", inMessage: true, Issue: outcome.Issue{
		Severity: "error", Code: "not-found", TxCode: "not-found", MessageID: id,
		Text: fmt.Sprintf("A definition for CodeSystem '%s' version '%s' could not be found, so the code cannot be validated. %s",
			c.System, version, definitions.ValidVersions(versions)),
	}}
}

// displayChecker checks the displays of codings.
type displayChecker struct {
	issues    *issueList
	languages codesystem.Languages
	language  string // requested languages
	warnsOnly bool   // whether a wrong display is only a warning
}

// check compares the display of a coding with those of its concept in the requested languages, ignoring case. A user-assigned
// code may also have other valid displays.
func (d *displayChecker) check(c *parameters.Coding, texts []codesystem.Text, userAssigned bool) {
	if c.Display == "" || len(texts) == 0 {
		return
	}
	var valid, listed []*codesystem.Text
	var same *codesystem.Text
	for i := range texts {
		t := &texts[i]
		if t.IsFormer {
			if same == nil && equalDisplay(t.Value, c.Display) {
				d.addFormerDisplay(c, texts)
				return
			}
			continue
		}
		if equalDisplay(t.Value, c.Display) && (same == nil || d.acceptsLanguage(t.Language)) {
			same = t
		}
		if d.acceptsLanguage(t.Language) {
			valid = append(valid, t)
			if t.CanBeDisplay() {
				listed = append(listed, t)
			}
		}
	}
	switch {
	case same != nil && slices.Contains(valid, same):
		d.checkDisplayStatus(c, same, listed)
	case len(valid) > 0:
		d.addWrongDisplay(c, listed, userAssigned)
	case same != nil:
		d.issues.addFormatted("information", "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_OK", c, "display", true,
			"There are no valid display names found for the code %s#%s for language(s) '%s'. The display is '%s' which is a valid display for the default language",
			c.System, c.Code, d.language, c.Display)
	default:
		d.issues.addFormatted(d.severity(), "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_ERR", c, "display", true,
			"Wrong Display Name '%s' for %s#%s. There are no valid display names found for language(s) '%s'. Default display is '%s'",
			c.Display, c.System, c.Code, d.language, texts[max(0, codesystem.FirstDisplay(texts))].Value)
	}
}

// checkLookupOnly adds an issue if a display differs from name. The suffix of name in parentheses is optional.
func (d *displayChecker) checkLookupOnly(c *parameters.Coding, name []byte) {
	withoutSuffix := name
	if at := bytes.LastIndex(name, []byte(" (")); at >= 0 {
		withoutSuffix = name[:at]
	}
	if c.Display != "" && !equalDisplay(name, c.Display) && !equalDisplay(withoutSuffix, c.Display) {
		d.issues.addFormatted("information", "informational", "display-comment", "", c, "display", true,
			"The display '%s' of the code %s#%s was not checked: only the name '%s' is available", c.Display, c.System, c.Code, name)
	}
}

// acceptsLanguage reports whether displays in a language are valid, because it is requested or unknown.
func (d *displayChecker) acceptsLanguage(language string) bool {
	return language == "" || d.languages.Accepts(language)
}

func (d *displayChecker) severity() string {
	if d.warnsOnly {
		return "warning"
	}
	return "error"
}

// addWrongDisplay adds an issue for an invalid display.
func (d *displayChecker) addWrongDisplay(c *parameters.Coding, valid []*codesystem.Text, userAssigned bool) {
	var choices []string
	listed := make(map[string]bool)
	for _, t := range valid {
		choice := "'" + string(t.Value) + "'"
		if t.Language != "" {
			choice += " (" + t.Language + ")"
		}
		if !listed[choice] {
			listed[choice] = true
			choices = append(choices, choice)
		}
	}
	is := "display is "
	if n := len(choices); n > 1 {
		is += fmt.Sprintf("one of %d choices: ", n)
		choices = []string{strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]}
	}
	among := fmt.Sprintf("%s%s (for the language(s) '%s')", is, strings.Join(choices, ""), cmp.Or(d.language, "--"))
	if userAssigned {
		d.issues.addFormatted("information", "invalid", "invalid-display", "Display_Name_Not_Fixed_use_Supplement", c, "display", true,
			"The display name '%s' is not a known display name for %s#%s. Known %s. Use a supplement to define displays for user assigned codes",
			c.Display, c.System, c.Code, among)
		return
	}
	id, wrong := "Display_Name_for__should_be_one_of__instead_of", "Display Name"
	if slices.ContainsFunc(valid, func(t *codesystem.Text) bool { return equalIgnoringSpaces(t.Value, c.Display) }) {
		id, wrong = "Display_Name_WS_for__should_be_one_of__instead_of", "whitespace in Display Name"
	}
	d.issues.addFormatted(d.severity(), "invalid", "invalid-display", id, c, "display", true,
		"Wrong %s '%s' for %s#%s. Valid %s", wrong, c.Display, c.System, c.Code, among)
}

// checkDisplayStatus adds an issue if a display is deprecated or withdrawn.
func (d *displayChecker) checkDisplayStatus(c *parameters.Coding, t *codesystem.Text, valid []*codesystem.Text) {
	if !bytes.Contains(t.Extension, []byte(`"withdrawn"`)) && !bytes.Contains(t.Extension, []byte(`"deprecated"`)) {
		return
	}
	var correct []string
	for _, other := range valid {
		if other.IsDisplay {
			correct = append(correct, `"`+string(other.Value)+`"`)
		}
	}
	d.issues.addFormatted("warning", "invalid", "display-comment", "INACTIVE_DISPLAY_FOUND", c, "display", false,
		"'%s' is no longer considered a correct display for code '%s' (status = deprecated). The correct display is one of %s.",
		c.Display, c.Code, strings.Join(correct, ", "))
}

// addFormerDisplay adds an issue for a display that is no longer in use.
func (d *displayChecker) addFormerDisplay(c *parameters.Coding, texts []codesystem.Text) {
	var correct []string
	for i := range texts {
		if !texts[i].IsFormer {
			definitions.AppendUnique(&correct, string(texts[i].Value))
		}
	}
	slices.Sort(correct)
	d.issues.addFormatted("warning", "invalid", "display-comment", "INACTIVE_DISPLAY_FOUND", c, "display", false,
		"'%s' is no longer considered a correct display for code '%s' (status = inactive). The correct display is one of \"%s\".",
		c.Display, c.Code, strings.Join(correct, `","`))
}

func equalDisplay(have []byte, given string) bool { return strings.EqualFold(string(have), given) }

// equalIgnoringSpaces reports whether displays are equal, ignoring case and extra spaces.
func equalIgnoringSpaces(have []byte, given string) bool {
	return strings.EqualFold(strings.Join(strings.Fields(string(have)), " "), strings.Join(strings.Fields(given), " "))
}
