package examples

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

const chartFolder = "../../docs/examples/helm"

// render runs helm template with the values. It returns the rendered files by name.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "gateway", Namespace: "fhir", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities) // also validates the values against the schema
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

func exampleValues(t *testing.T, name string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValuesFile(filepath.Join(chartFolder, "examples", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// decode decodes rendered objects. Unknown fields are errors.
func decode(t *testing.T, files map[string]string) []runtime.Object {
	t.Helper()
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, gateway.Install, monitoring.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for name, text := range files {
		for document := range strings.SplitSeq("\n"+text, "\n---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			object, _, err := decoder.Decode([]byte(document), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			objects = append(objects, object)
		}
	}
	return objects
}

func find[T runtime.Object](t *testing.T, objects []runtime.Object, name string) (found T) {
	t.Helper()
	for _, object := range objects {
		if o, ok := object.(T); ok && reflect.ValueOf(object).Elem().FieldByName("Name").String() == name {
			return o
		}
	}
	t.Fatalf("no %v of the name %s", reflect.TypeFor[T](), name)
	return found
}

// Every example values file renders exactly the expected kinds.
func TestChart(t *testing.T) {
	always := []string{"Deployment", "NetworkPolicy", "Service"}
	more := map[string][]string{
		"sidecar":  {"Ingress", "PersistentVolumeClaim"},
		"redis":    {"HTTPRoute", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor"},
		"postgres": {"Ingress", "NetworkPolicy", "PodDisruptionBudget"},
	}
	files, err := filepath.Glob(filepath.Join(chartFolder, "examples/*.yaml"))
	if err != nil || len(files) != len(more) {
		t.Fatal(err, files)
	}
	for name, kinds := range more {
		t.Run(name, func(t *testing.T) {
			files, err := render(t, exampleValues(t, name))
			if err != nil {
				t.Fatal(err)
			}
			objects := decode(t, files)
			var got []string
			for _, object := range objects {
				got = append(got, object.GetObjectKind().GroupVersionKind().Kind)
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(slices.Concat(always, kinds))); !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			checkPod(t, objects)
			checkTogether(t, objects)
			checkPolicies(t, objects)
			checkCaddyfile(t, objects)
		})
	}
}

// Options that no example uses are rendered too, all at once, for gateways with a shared store and a FHIR server in their Pods.
func TestChartOptions(t *testing.T) {
	const text = `
mode: sidecar
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: registry}]
expand: |
  operations all
fhirServer: {image: hapi, volumes: [{name: lucene, emptyDir: {}}], volumeMounts: [{name: lucene, mountPath: /lucene}]}
store: {type: redis, address: "redis:6379", ca: store-ca}
ingress: {enabled: true, className: nginx, annotations: {a: b}, tlsSecretName: tls}
podAnnotations: {c: d}
nodeSelector: {e: f}
tolerations: [{key: g, operator: Exists}]
affinity: {nodeAffinity: {}}
`
	values := exampleValues(t, "redis")
	options, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(values, options)
	files, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, files)
	checkPod(t, objects)
	checkTogether(t, objects)
	checkPolicies(t, objects)
	checkCaddyfile(t, objects)
	deployment := find[*apps.Deployment](t, objects, chartName)
	pod := deployment.Spec.Template
	if pod.Annotations["c"] != "d" || pod.Spec.NodeSelector["e"] != "f" || len(pod.Spec.Tolerations) != 1 || len(pod.Spec.ImagePullSecrets) != 1 ||
		pod.Spec.Affinity == nil || len(pod.Spec.TopologySpreadConstraints) != 1 || deployment.Spec.Replicas != nil ||
		!strings.HasPrefix(pod.Spec.Containers[0].Image, "ghcr.io/caddy-fhir/caddy-fhir@sha256:") || len(pod.Spec.InitContainers[0].VolumeMounts) != 2 {
		t.Errorf("%+v", pod)
	}
	if text := caddyfile(t, objects); !strings.Contains(text, "\t\t\ttls_ca "+secretsDir+"/store-ca\n") {
		t.Error(text)
	}
}

// Values that would have an unintended effect violate the schema.
func TestChartRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, values string
		change       map[string]any
	}{
		{"two gateways on a file", "sidecar", map[string]any{"replicas": 2}},
		{"scaling on a file", "sidecar", map[string]any{"autoscaling": map[string]any{"enabled": true}}},
		{"a shared store without a secret", "postgres", map[string]any{"secretName": ""}},
		{"a policy that lets everybody in", "sidecar", map[string]any{"networkPolicy": map[string]any{"from": []any{}}}},
		{"a policy for all Pods", "postgres", map[string]any{"backend": map[string]any{"host": "hapi", "podLabels": nil}}},
		{"no FHIR server", "postgres", map[string]any{"backend": map[string]any{"host": "", "podLabels": map[string]any{"app": "hapi"}}}},
		{"a FHIR server without an image", "sidecar", map[string]any{"fhirServer": map[string]any{"image": ""}}},
		{"a FHIR server at the gateway's port", "sidecar", map[string]any{"fhirServer": map[string]any{"image": "hapi", "port": 8000}}},
		{"no TLS termination", "sidecar", map[string]any{"trustedProxies": []any{}}},
		{"an issuer without TLS", "sidecar", map[string]any{"issuer": "http://fhir.hospital.example"}},
		{"more in an address than an address", "redis", map[string]any{"store": map[string]any{"type": "redis", "address": "a:1\nreplica"}}},
		{"more in a file's name than a name", "redis", map[string]any{"store": map[string]any{"type": "redis", "address": "a:1", "ca": "a\nreplica"}}},
		{"unknown value name", "sidecar", map[string]any{"replica": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := exampleValues(t, tt.values)
			maps.Copy(values, tt.change)
			if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), "values don't meet the specifications of the schema") {
				t.Errorf("it is rendered, or fails otherwise: %v", err)
			}
		})
	}
}

// validate provisions a Caddyfile without a port.
func validate(t *testing.T, caddyfile string, environ ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte(caddyfile), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary(t), "validate", "--config", file, "--adapter", "caddyfile")
	command.Env = append(os.Environ(), append(environ, "HOME="+t.TempDir())...)
	output, err := command.CombinedOutput()
	if err != nil || strings.Contains(string(output), "not formatted") {
		t.Errorf("%v\n%s\n%s", err, output, caddyfile)
	}
}

func binary(t *testing.T) string {
	t.Helper()
	file := cmp.Or(os.Getenv("CADDY_BIN"), "../caddy")
	if !filepath.IsAbs(file) {
		file = filepath.Join("..", file) // relative to e2e
	}
	if _, err := os.Stat(file); err != nil {
		t.Skip("no binary: go run ./caddymodule/build makes it")
	}
	return file
}
