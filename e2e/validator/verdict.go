package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// answersFile is the file to which the validator writes its messages.
const answersFile = out + "/answers.json"

// notFound is part of the validator's message for a code system that the terminology server does not have.
const notFound = "could not be found"

// issue is one message of the validator.
type issue struct {
	Severity   string
	Details    struct{ Text string }
	Expression []string
}

// validatorOutput is the Bundle that the validator writes: one OperationOutcome per file, with the file name in an extension.
type validatorOutput struct {
	Entry []struct {
		Resource struct {
			Extension []struct{ URL, ValueString string }
			Issue     []issue
		}
	}
}

// verdicts returns the validator's messages by file name. It replaces the gateway's origin, which differs in each run, with
// address.
func verdicts(file, origin string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var a validatorOutput
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, err
	}
	messages := map[string]string{}
	for _, e := range a.Entry {
		var lines strings.Builder
		for _, i := range e.Resource.Issue {
			fmt.Fprintf(&lines, "%s %s: %s\n", i.Severity, strings.Join(i.Expression, ", "), i.Details.Text)
		}
		for _, x := range e.Resource.Extension {
			if strings.HasSuffix(x.URL, "operationoutcome-file") {
				messages[filepath.Base(x.ValueString)] = strings.ReplaceAll(lines.String(), origin, "http://gateway")
			}
		}
	}
	return messages, nil
}

// compare prints unexpected and missing messages, and returns the number of files that have such messages.
func compare(files []string, g *gateway) (wrong int, err error) {
	messages, err := verdicts(answersFile, g.origin)
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		ok, err := matchesExpectation(file, messages[filepath.Base(file)])
		if err != nil {
			return 0, err
		}
		if !ok {
			wrong++
		}
	}
	fmt.Printf("%d files, %d as expected\n", len(files), len(files)-wrong)
	return wrong, printRequests(g)
}

// matchesExpectation writes the actual messages for one file, and reports whether they equal the expected ones.
func matchesExpectation(file, messages string) (bool, error) {
	name := strings.TrimSuffix(filepath.Base(file), ".json")
	if err := os.WriteFile(filepath.Join(out, name+".txt"), []byte(messages), 0o600); err != nil {
		return false, err
	}
	expected, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".txt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	lines := difference(string(expected), messages)
	fmt.Printf("%-20s errors %2d, warnings %2d, code systems not found %d\n", name,
		strings.Count("\n"+messages, "\nerror "), strings.Count("\n"+messages, "\nwarning "), strings.Count(messages, notFound))
	for _, line := range lines {
		fmt.Println("  " + line)
	}
	return len(lines) == 0, nil
}

// difference returns the lines that only one text contains: prefixed with - for expected, + for said.
func difference(expected, actual string) (lines []string) {
	left, right := strings.Split(strings.TrimSpace(expected), "\n"), strings.Split(strings.TrimSpace(actual), "\n")
	for _, line := range left {
		if !slices.Contains(right, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range right {
		if !slices.Contains(left, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return lines
}

func printRequests(g *gateway) error {
	counts, err := g.requests()
	for _, request := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%4d %s\n", counts[request], request)
	}
	return err
}
