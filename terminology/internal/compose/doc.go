// Package compose evaluates value sets. [Expander.Codes] lists their codes. An [Evaluator] with a [Probe] finds a single code
// without expanding the value set.
//
// # Files
//
//	rules.go          selection of the value set and of the versions of definitions
//	expander.go       cached and new expansions:
//	  compose.go        compose and its imports; the codes of an include in one or all versions of its code system
//	  conceptfilter.go  filters: by hierarchy and by property
//	probe.go          finds the includes with a single code, without expanding
//	search.go         the parameter filter, and usage weights
//	tree.go           nesting
//
// # Expansion
//
// An expansion is the union of the includes minus the excludes (R4 §4.9.5). An include contains the codes of its system,
// restricted by concept or filter, that are in all of its value sets. Codes are in the order of the includes. Within an
// include, they are in the order of the code system or list, newest version first. If a value set refers to several versions of
// a code system, the same code in two versions is treated as two codes with versions, unless versionsMatch is true or the value
// set is the difference of two versions. In those cases, it is a single code from the newest version.
//
// An expansion is either complete or fails with an error that wraps [outcome.ErrIncomplete]:
//
//   - A system or filter requires the given version of the code system with content complete, fragment or example. For a
//     fragment or example, the loaded part is expanded, with the extension valueset-unclosed and the parameter used-fragment or
//     used-example.
//   - Enumerated concepts do not require the code system. Codes that a complete code system lacks are omitted. If the code
//     system or its version is not loaded, all codes are included, with the parameter warning-unknown-system. $validate-code
//     then reports them as valid with a warning.
//   - Filters support the operators of R4, and child-of and descendent-leaf of R5 (also as the extension of HL7's R4
//     converter). The property is concept, code, display, parent, child, or a property that the code system declares or a
//     concept has. The concept of a hierarchical filter must exist. A regex has Go's syntax and must match entire values.
//   - The property notSelectable makes a concept abstract. A concept is inactive if it has the property inactive, a status of
//     retired or inactive, or the standards status withdrawn. compose.inactive false excludes inactive codes. Codes of code
//     systems that are not loaded are treated as active.
//   - Contained value sets and code systems, referenced by #id or canonical, take precedence over loaded ones. Other resources
//     refer to a contained value set, or to a contained code system without a URL, by the canonical container#id. A stored
//     expansion is ignored if there is a compose.
//   - Required supplements must be loaded.
//   - Definitions with modifier extensions, or with implicit rules other than those of HL7's converter, are rejected.
//   - If compose has a lockedDate, code systems without a version are used as of that date.
//
// Code systems imply the value sets CodeSystem.valueSet, url?fhir_vs and url?fhir_vs=isa/code.
package compose
