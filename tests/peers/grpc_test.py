"""The gRPC door to a client in another language: health per service with Watch, reflection, limits, drain."""

import queue
import signal
import threading

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from google.protobuf import descriptor_pool, message_factory

from local_service import PATIENCE, ServiceTestCase, main

SERVICES = ["JobService", "PlanService", "NodeService", "WorkerService"]


class Grpc(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.channel = grpc.insecure_channel(self.endpoint()["grpc"], options=[("grpc.enable_http_proxy", 0)])
        self.addCleanup(self.channel.close)

    def call(self, method, token=None, **fields):
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        service, name = method.split(".")
        described = pool.FindServiceByName(f"tessera.v1.{service}").methods_by_name[name]
        request = message_factory.GetMessageClass(described.input_type)(**fields)
        answer = message_factory.GetMessageClass(described.output_type)
        stub = self.channel.unary_unary(f"/tessera.v1.{service}/{name}", lambda m: m.SerializeToString(), answer.FromString)
        return stub(request, timeout=PATIENCE, metadata=[("authorization", f"Bearer {token or self.token()}")])

    def test_reflection_is_enough_to_call_every_public_service(self):
        self.assertEqual(len(self.call("NodeService.ListNodes").nodes), 1)
        self.assertEqual(len(self.call("JobService.ListTrainingJobs", filter="status.state = running").training_jobs), 0)
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("JobService.GetTrainingJob", name="none")
        self.assertEqual(refused.exception.code(), grpc.StatusCode.NOT_FOUND)
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("JobService.ListTrainingJobs", token="0" * 64)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAUTHENTICATED)

    def test_messages_are_bounded(self):
        with self.assertRaises(grpc.RpcError) as refused:
            self.call("JobService.ListTrainingJobs", filter="x" * (17 << 20))
        self.assertEqual(refused.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_health_of_every_service_is_watched_through_a_drain(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ["", *(f"tessera.v1.{name}" for name in SERVICES)]:
            self.assertEqual(health.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE).status, serving)
        unknown = health.Watch(health_pb2.HealthCheckRequest(service="no.such"), timeout=PATIENCE)
        self.assertEqual(next(unknown).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        unknown.cancel()
        seen = queue.Queue()

        def watch():
            try:
                for answer in health.Watch(health_pb2.HealthCheckRequest(service="tessera.v1.JobService"), timeout=PATIENCE):
                    seen.put(answer.status)
            except grpc.RpcError:
                seen.put(None)

        thread = threading.Thread(target=watch)
        thread.start()
        self.assertEqual(seen.get(timeout=PATIENCE), serving)
        self.daemon.send_signal(signal.SIGTERM)
        self.assertEqual(seen.get(timeout=PATIENCE), health_pb2.HealthCheckResponse.NOT_SERVING)
        self.assertEqual(self.daemon.wait(timeout=PATIENCE), 0)
        thread.join()


if __name__ == "__main__":
    main()
