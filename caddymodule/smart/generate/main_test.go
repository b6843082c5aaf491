package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	types = `<Bundle xmlns="http://hl7.org/fhir">
		<entry><resource><StructureDefinition><derivation value="specialization"/><snapshot>
			<element><path value="Period"/></element>
			<element><path value="Period.start"/><type><code value="dateTime"/></type></element>
			<element><path value="ContactPoint.system"/><type><code value="code"/></type></element>
		</snapshot></StructureDefinition></resource></entry>
		<entry><resource><StructureDefinition><derivation value="constraint"/><snapshot>
			<element><path value="Period.start"/><type><code value="wrong"/></type></element>
		</snapshot></StructureDefinition></resource></entry></Bundle>`
	resources = `<Bundle xmlns="http://hl7.org/fhir"><entry><resource><StructureDefinition>
		<derivation value="specialization"/><snapshot>
		<element><path value="Patient.meta"/><type><code value="Meta"/></type></element>
		<element><path value="X.meta"/><type><code value="Meta"/></type></element>
		<element><path value="Y.meta"/><type><code value="Meta"/></type></element>
		<element><path value="X.id"/><type><code value="http://hl7.org/fhirpath/System.String"/></type></element>
		<element><path value="X.value[x]"/><type><code value="Quantity"/></type><type><code value="dateTime"/></type><type><code value="Period"/></type></element>
		<element><path value="X.part"/><type><code value="BackboneElement"/></type></element>
		<element><path value="X.part.who"/><type><code value="Reference"/></type></element>
		<element><path value="X.part.part"/><contentReference value="#X.part"/></element>
		<element><path value="X.status"/><type><code value="code"/></type><binding><valueSet value="http://x/vs|4.0.1"/></binding></element>
		<element><path value="X.mixed"/><type><code value="code"/></type><binding><valueSet value="http://x/mixed"/></binding></element>
		<element><path value="X.telecom"/><type><code value="ContactPoint"/></type></element>
		</snapshot></StructureDefinition></resource></entry></Bundle>`
	valueSets = `<Bundle xmlns="http://hl7.org/fhir">
		<entry><resource><ValueSet><url value="http://x/vs"/><compose><include><system value="http://x/cs"/></include></compose></ValueSet></resource></entry>
		<entry><resource><ValueSet><url value="http://x/mixed"/><compose><include><system value="http://x/cs"/></include>
			<include><valueSet value="http://x/vs"/></include></compose></ValueSet></resource></entry></Bundle>`
	parameters = `{"entry":[
		{"resource":{"code":"status","type":"token","base":["X"],"expression":"X.status | X.mixed"}},
		{"resource":{"code":"id","type":"token","base":["X"],"expression":"X.id"}},
		{"resource":{"code":"any","type":"date","base":["X"],"expression":"X.value"}},
		{"resource":{"code":"cast","type":"quantity","base":["X"],"expression":"(X.value as Quantity) | X.value.as(Age)"}},
		{"resource":{"code":"deep","type":"date","base":["X"],"expression":"(X.value as Period).start | X.value.ofType(dateTime)"}},
		{"resource":{"code":"who","type":"reference","base":["X"],"expression":"X.part.part.who.where(resolve() is Patient) | Y.z","target":["Patient","Group"]}},
		{"resource":{"code":"phone","type":"token","base":["X"],"expression":"telecom.where(system='phone')"}},
		{"resource":{"code":"odd","type":"token","base":["X"],"expression":"X.telecom.exists() and X.id != false"}},
		{"resource":{"code":"first","type":"token","base":["X"],"expression":"X.telecom[0]"}},
		{"resource":{"code":"both","type":"composite","base":["X"],"expression":"X"}},
		{"resource":{"code":"none","type":"string","base":["X"]}}]}`
	table = `X	any	date		valueQuantity:Quantity valueDateTime:dateTime valuePeriod:Period
X	both	composite		
X	cast	quantity		
X	deep	date		valuePeriod.start:dateTime valueDateTime:dateTime
X	first	token		
X	id	token		id:string
X	none	string		
X	odd	token		
X	phone	token		telecom[system=phone]:ContactPoint
X	status	token		status:code@http://x/cs mixed:code
X	who	reference	Group Patient	part.part.who[Patient]:Reference
`
)

func TestParameters(t *testing.T) {
	t.Parallel()
	jar := archive(t, map[string]string{typesFile: types, resourcesFile: resources, valueSetsFile: valueSets, parametersFile: parameters})
	out := filepath.Join(t.TempDir(), "out.tsv")
	if err := write(jar, out, parameterTable); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(out); string(got) != table {
		t.Errorf("got\n%s", got)
	}
}

// A type without parameters has no members, except for the owner of a compartment.
func TestCompartments(t *testing.T) {
	t.Parallel()
	jar := archive(t, map[string]string{resourcesFile: `<Bundle xmlns="http://hl7.org/fhir">
		<entry><resource><StructureDefinition><url value="http://hl7.org/fhir/StructureDefinition/Task"/></StructureDefinition></resource></entry>
		<entry><resource><CompartmentDefinition><code value="Patient"/>
			<resource><code value="Patient"/><param value="link"/></resource>
			<resource><code value="Task"/></resource>
			<resource><code value="List"/><param value="subject"/><param value="source"/></resource>
		</CompartmentDefinition></resource></entry>
		<entry><resource><CompartmentDefinition><code value="Device"/>
			<resource><code value="Device"/><param value="{def}"/></resource>
		</CompartmentDefinition></resource></entry></Bundle>`})
	out := filepath.Join(t.TempDir(), "out.tsv")
	if err := write(jar, out, compartmentTable); err != nil {
		t.Fatal(err)
	}
	want := []string{"Device\tDevice\t{def}", "Patient\tList\tsource subject", "Patient\tPatient\tlink {def}"}
	got, _ := os.ReadFile(out)
	if lines := strings.Split(strings.TrimSpace(string(got)), "\n"); !slices.Equal(lines, want) {
		t.Errorf("got\n%s", got)
	}
}

func TestFails(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out.tsv")
	for name, jar := range map[string]string{
		"no archive":    filepath.Join(t.TempDir(), "none.jar"),
		"nothing in it": archive(t, nil),
		"no XML":        archive(t, map[string]string{typesFile: "<", resourcesFile: "<"}),
	} {
		if err := write(jar, out, parameterTable); err == nil {
			t.Errorf("%s: parameters were made", name)
		}
		if err := write(jar, out, compartmentTable); err == nil {
			t.Errorf("%s: compartments were made", name)
		}
	}
}

// archive writes files to a zip archive and returns its path.
func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "a.jar"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := zip.NewWriter(file)
	for name, text := range files {
		entry, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := entry.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}
