package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/loinc/loinctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
)

// Numbers of concepts in the International Edition and in the UK Edition of SNOMED CT, including inactive ones.
const (
	internationalConcepts = 350_000
	ukConcepts            = 831_000
)

// measureClinical measures gateways with synthetic releases of SNOMED CT and LOINC: the CPU time until the search indexes are
// built, the resident memory, and searches in implicit value sets.
func measureClinical(s settings, folder string) error {
	const sct = "http://snomed.info/sct?fhir_vs"
	finding := snomedtest.ClinicalFinding
	for _, of := range []struct {
		name      string
		concepts  int
		write     func(archive string) error
		valueSets []string
	}{
		{"without content", 0, nil, nil},
		{"SNOMED CT, International", internationalConcepts, snomedtest.Edition{Concepts: internationalConcepts}.WriteZip, []string{
			sct, sct + "=isa/" + finding, sct + "=ecl/<" + finding + ":" + snomedtest.FindingSite + "=*",
		}},
		{"SNOMED CT, UK", ukConcepts, snomedtest.Edition{Concepts: ukConcepts}.WriteZip, []string{sct}},
		{"LOINC", 100_000, writeLOINC, []string{"http://loinc.org/vs"}},
	} {
		archive := ""
		if of.write != nil {
			archive = filepath.Join(folder, "Loinc_2.99.zip")
			if err := of.write(archive); err != nil {
				return err
			}
		}
		if err := measureRelease(s, folder, of.name, archive, of.valueSets, of.concepts); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}

// writeLOINC writes a release of the size of LOINC 2.82.
func writeLOINC(archive string) error {
	return loinctest.Release{
		Terms: 100_000, Parts: 60_000,
		Languages: []string{"deDE", "deAT", "elGR", "esES", "frFR", "itIT", "koKR", "nlNL", "ptBR", "ruRU", "trTR", "zhCN"},
	}.WriteZip(archive)
}

// measureRelease starts a gateway with a release archive, or without definitions if archive is "", and searches in its value sets.
func measureRelease(s settings, folder, name, archive string, valueSets []string, concepts int) (err error) {
	definitions := ""
	if archive != "" {
		definitions = "\t\tdefinitions " + archive + "\n"
	}
	gateway, err := start(s.binary, folder, site{name: "gateway", routes: "\tfhir_expand {\n" + definitions + "\t\tttl off\n\t}"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()
	cpu, err := gateway.awaitIdle()
	if err != nil {
		return err
	}
	now, peak, err := gateway.resident()
	if err != nil {
		return err
	}
	fmt.Printf("\n## %s\n\nReady after %.1f s of CPU, %d MiB resident, %d at most.\n", name, cpu.Seconds(), now, peak)
	if len(valueSets) == 0 {
		return nil
	}
	fmt.Printf("\n%s", tableHead)
	var all []string
	for _, valueSet := range valueSets {
		typed, err := typedPaths(gateway, "url="+url.QueryEscape(valueSet), concepts/10)
		if err != nil {
			return err
		}
		all = append(all, flatten(typed)...)
		ours, fixed, err := compare(s, folder, gateway, scenario{"typed", flatten(typed), nil})
		if err != nil {
			return err
		}
		printRow(valueSet, ours, fixed)
	}
	return soak(s, gateway, all)
}

// soak loads the gateway for the time of the flag -soak and prints its memory.
func soak(s settings, gateway *server, paths []string) error {
	l, err := gateway.round(gateway.gets(paths, nil), s.clients, s.soak)
	if err != nil {
		return err
	}
	now, peak, err := gateway.resident()
	fmt.Printf("\nAfter %v and %d further requests: %d MiB resident, %d at most, p99 %s.\n", s.soak, l.requests, now, peak, milliseconds(l.quantile(0.99)))
	return err
}

// awaitIdle waits until the server uses almost no CPU time for a second, because search indexes are built after the start. It
// returns the CPU time that the server has used.
func (s *server) awaitIdle() (last time.Duration, err error) {
	for range 300 {
		time.Sleep(time.Second)
		cpu, err := s.cpu()
		if err != nil || cpu-last <= 2*clockTick {
			return cpu, err
		}
		last = cpu
	}
	return last, errors.New("the server is still busy after five minutes")
}
